import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.common.record.CompressionType;
import org.apache.kafka.common.record.LogEntry;
import org.apache.kafka.common.record.MemoryRecords;

/** kafka-clients 0.9.0: message sets v0, as a producer sends them. */
final class Era {
    byte[] magics() {
        return new byte[] {0};
    }

    boolean writesAppendTime() {
        return false;
    }

    int longest() {
        return 70_000; // crosses blocks of lz4
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
        return set.buffer();
    }

    List<OldSets.Rec> read(ByteBuffer set) {
        List<OldSets.Rec> found = new ArrayList<>();
        for (LogEntry one : MemoryRecords.readableRecords(set)) {
            one.record().ensureValid();
            found.add(new OldSets.Rec(one.offset(), -1, -1, OldSets.bytes(one.record().key()), OldSets.bytes(one.record().value())));
        }
        return found;
    }
}
