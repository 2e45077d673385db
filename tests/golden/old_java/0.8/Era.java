import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.common.record.CompressionType;
import org.apache.kafka.common.record.LogEntry;
import org.apache.kafka.common.record.MemoryRecords;

/** kafka-clients 0.8.2: message sets v0, as a producer sends them. */
final class Era {
    byte[] magics() {
        return new byte[] {0};
    }

    boolean writesAppendTime() {
        return false;
    }

    int longest() {
        return 40_000; // its own reader fails where a record crosses blocks of lz4
    }

    boolean hasOffsets() {
        return false;
    }

    ByteBuffer write(ByteBuffer target, byte magic, String codec, boolean appendTime, List<OldSets.Rec> records) {
        MemoryRecords set = MemoryRecords.emptyRecords(target, CompressionType.valueOf(codec));
        for (OldSets.Rec one : records) {
            set.append(one.offset, one.key, one.value);
        }
        set.close();
        return (ByteBuffer) set.buffer().duplicate().flip();
    }

    List<OldSets.Rec> read(ByteBuffer set) {
        set.position(set.limit()); // it reads what is before the position
        List<OldSets.Rec> found = new ArrayList<>();
        MemoryRecords content = MemoryRecords.emptyRecords(set, CompressionType.NONE);
        content.close(); // without this it has no buffer to read
        for (LogEntry one : content) {
            one.record().ensureValid();
            found.add(new OldSets.Rec(one.offset(), -1, -1, OldSets.bytes(one.record().key()), OldSets.bytes(one.record().value())));
        }
        return found;
    }
}
