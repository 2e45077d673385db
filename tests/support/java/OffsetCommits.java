import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.MessageUtil;

/**
 * Records of __consumer_offsets as Kafka's own generated classes write them. A line of tab-separated fields in, key and
 * value as base64 out: "commit, type of key, version of value, group, topic, partition, offset, leader epoch, metadata,
 * commit time, expiry, topic id", or "group, type of key, version of value, group". Texts are base64.
 */
public final class OffsetCommits {
    private static final String GENERATED = "org.apache.kafka.coordinator.group.generated.";

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] told = line.split("\t", -1);
            System.out.println(told[0].equals("commit") ? commit(told) : group(told));
        }
    }

    private static String commit(String[] told) throws Exception {
        short type = Short.parseShort(told[1]);
        short version = Short.parseShort(told[2]);
        Object key = make(type == 0 && exists("LegacyOffsetCommitKey") ? "LegacyOffsetCommitKey" : "OffsetCommitKey");
        set(key, "setGroup", String.class, text(told[3]));
        set(key, "setTopic", String.class, text(told[4]));
        set(key, "setPartition", int.class, Integer.parseInt(told[5]));
        Object value = make("OffsetCommitValue");
        set(value, "setOffset", long.class, Long.parseLong(told[6]));
        set(value, "setLeaderEpoch", int.class, Integer.parseInt(told[7]));
        set(value, "setMetadata", String.class, text(told[8]));
        set(value, "setCommitTimestamp", long.class, Long.parseLong(told[9]));
        set(value, "setExpireTimestamp", long.class, Long.parseLong(told[10]));
        if (!told[11].isEmpty()) {
            set(value, "setTopicId", Uuid.class, Uuid.fromString(told[11]));
        }
        return key(type, key) + "\t" + base64(MessageUtil.toVersionPrefixedBytes(version, (Message) value));
    }

    private static String group(String[] told) throws Exception {
        short type = Short.parseShort(told[1]);
        String kind = type == 2 ? "GroupMetadata" : type == 3 ? "ConsumerGroupMetadata" : "StreamsGroupMetadata";
        Object key = make(kind + "Key");
        set(key, type == 2 ? "setGroup" : "setGroupId", String.class, text(told[3]));
        return key(type, key) + "\t" + base64(MessageUtil.toVersionPrefixedBytes(Short.parseShort(told[2]), (Message) make(kind + "Value")));
    }

    /** Keys begin with their type: a version of theirs until 4.0, and from then on what the classes call their API key. */
    private static String key(short type, Object key) throws Exception {
        try {
            Method prefixed = MessageUtil.class.getMethod("toCoordinatorTypePrefixedBytes", ApiMessage.class);
            return base64((byte[]) prefixed.invoke(null, key));
        } catch (NoSuchMethodException older) {
            return base64(MessageUtil.toVersionPrefixedBytes(type, (Message) key));
        }
    }

    private static boolean exists(String name) {
        try {
            Class.forName(GENERATED + name);
            return true;
        } catch (ClassNotFoundException none) {
            return false;
        }
    }

    private static Object make(String name) throws Exception {
        return Class.forName(GENERATED + name).getConstructor().newInstance();
    }

    private static void set(Object message, String name, Class<?> type, Object value) throws Exception {
        message.getClass().getMethod(name, type).invoke(message, value);
    }

    private static String text(String base64) {
        return new String(Base64.getDecoder().decode(base64), StandardCharsets.UTF_8);
    }

    private static String base64(byte[] bytes) {
        return Base64.getEncoder().encodeToString(bytes);
    }
}
