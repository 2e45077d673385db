import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;

/**
 * Writes message sets with an old kafka-clients, and what the same library reads in them: a line of JSON for each.
 * Compiled together with one `Era`, which knows the classes of that version.
 */
public final class OldSets {
    static final long TIME = 1_450_000_000_000L;
    static final long APPEND_TIME = 1_460_000_000_000L;
    private static final int MOST_BYTES = 1 << 20;

    /** A record to write, or that was read. The type of a time is -1 (none), 0 (CreateTime) or 1 (LogAppendTime). */
    static final class Rec {
        final long offset;
        final long time;
        final int type;
        final byte[] key;
        final byte[] value;

        Rec(long offset, long time, int type, byte[] key, byte[] value) {
            this.offset = offset;
            this.time = time;
            this.type = type;
            this.key = key;
            this.value = value;
        }
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(arguments[0]);
        Era era = new Era();
        long base = 0;
        for (byte magic : era.magics()) {
            for (String codec : new String[] {"NONE", "GZIP", "SNAPPY", "LZ4"}) {
                for (boolean appendTime : magic > 0 && era.writesAppendTime() ? new boolean[] {false, true} : new boolean[1]) {
                    ByteBuffer set = ByteBuffer.allocate(MOST_BYTES);
                    set = era.write(set, magic, codec, appendTime, records(era, base, codec, appendTime));
                    List<Rec> read = era.read(set.duplicate());
                    out.println("{\"magic\": " + magic + ", \"codec\": \"" + codec + "\", \"append_time\": " + appendTime
                        + ", \"set\": \"" + hex(set) + "\", \"records\": " + listing(read) + "}");
                    base += era.hasOffsets() ? 1000 : 0;
                }
            }
        }
        out.close();
    }

    /** All that a record can be. Versions without offsets of their own number from 0. */
    static List<Rec> records(Era era, long base, String codec, boolean appendTime) {
        byte[] random = new byte[150];
        new Random(7).nextBytes(random);
        List<Rec> made = new ArrayList<>();
        add(made, 0, null, bytes("plain"));
        add(made, TIME, bytes("key"), new byte[0]);
        add(made, TIME + 2, new byte[0], null);
        add(made, -1, bytes("gr\u00f6\u00dfe"), bytes("\u6e90"));
        add(made, TIME + 1, null, null);
        add(made, TIME + 9, bytes("random"), random);
        if (!codec.equals("NONE") && !appendTime) {
            add(made, TIME + 10, bytes("zeros"), new byte[codec.equals("SNAPPY") ? 33_000 : era.longest()]);
        }
        List<Rec> numbered = new ArrayList<>();
        for (Rec one : made) {
            int number = numbered.size();
            long offset = era.hasOffsets() ? base + 7 + number + number / 3 * 10L : number; // with gaps, as after compaction
            numbered.add(new Rec(offset, one.time, one.type, one.key, one.value));
        }
        return numbered;
    }

    private static void add(List<Rec> records, long time, byte[] key, byte[] value) {
        records.add(new Rec(0, time, 0, key, value));
    }

    static byte[] bytes(ByteBuffer buffer) {
        if (buffer == null) {
            return null;
        }
        byte[] content = new byte[buffer.remaining()];
        buffer.duplicate().get(content);
        return content;
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    static String listing(List<Rec> records) {
        StringBuilder text = new StringBuilder("[");
        for (Rec one : records) {
            text.append(text.length() > 1 ? ", " : "").append("[").append(one.offset).append(", ").append(one.time);
            text.append(", ").append(one.type).append(", ").append(spell(one.key)).append(", ").append(spell(one.value)).append("]");
        }
        return text.append("]").toString();
    }

    private static String spell(byte[] content) {
        if (content == null) {
            return "null";
        }
        boolean zeros = content.length > 1000;
        for (int index = 0; zeros && index < content.length; index++) {
            zeros = content[index] == 0;
        }
        return "\"" + (zeros ? content.length + " zeros" : hex(ByteBuffer.wrap(content))) + "\"";
    }

    private static String hex(ByteBuffer buffer) {
        StringBuilder text = new StringBuilder();
        for (byte one : bytes(buffer)) {
            text.append(String.format("%02x", one));
        }
        return text.toString();
    }
}
