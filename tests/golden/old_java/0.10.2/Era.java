import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.common.record.CompressionType;
import org.apache.kafka.common.record.LogEntry;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.MemoryRecordsBuilder;
import org.apache.kafka.common.record.Record;
import org.apache.kafka.common.record.TimestampType;

/** kafka-clients 0.10.2: message sets v0 and v1, as its brokers write them, too. */
final class Era {
    byte[] magics() {
        return new byte[] {0, 1};
    }

    boolean writesAppendTime() {
        return true;
    }

    int longest() {
        return 70_000; // crosses blocks of lz4
    }

    boolean hasOffsets() {
        return true;
    }

    ByteBuffer write(ByteBuffer target, byte magic, String codec, boolean appendTime, List<OldSets.Rec> records) {
        TimestampType type = magic == 0 ? TimestampType.NO_TIMESTAMP_TYPE
            : appendTime ? TimestampType.LOG_APPEND_TIME : TimestampType.CREATE_TIME;
        MemoryRecordsBuilder builder = MemoryRecords.builder(
            target, magic, CompressionType.valueOf(codec), type, records.get(0).offset, OldSets.APPEND_TIME);
        for (OldSets.Rec one : records) {
            builder.appendWithOffset(one.offset, magic == 0 ? -1 : one.time, one.key, one.value);
        }
        return builder.build().buffer();
    }

    List<OldSets.Rec> read(ByteBuffer set) {
        List<OldSets.Rec> found = new ArrayList<>();
        for (LogEntry one : MemoryRecords.readableRecords(set).deepEntries()) {
            Record record = one.record();
            record.ensureValid();
            found.add(new OldSets.Rec(
                one.offset(), record.timestamp(), record.timestampType().id, OldSets.bytes(record.key()), OldSets.bytes(record.value())));
        }
        return found;
    }
}
