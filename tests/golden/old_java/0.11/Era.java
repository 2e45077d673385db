import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.common.record.CompressionType;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.MemoryRecordsBuilder;
import org.apache.kafka.common.record.MutableRecordBatch;
import org.apache.kafka.common.record.Record;
import org.apache.kafka.common.record.TimestampType;

/** kafka-clients 0.11: message sets v0 and v1, and record batches v2. */
final class Era {
    byte[] magics() {
        return new byte[] {0, 1, 2};
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
        for (MutableRecordBatch batch : MemoryRecords.readableRecords(set).batches()) {
            batch.ensureValid();
            for (Record one : batch) {
                one.ensureValid();
                found.add(new OldSets.Rec(
                    one.offset(), one.timestamp(), batch.timestampType().id, OldSets.bytes(one.key()), OldSets.bytes(one.value())));
            }
        }
        return found;
    }
}
