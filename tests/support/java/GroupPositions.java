import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.Map;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ConsumerGroupListing;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;

/** What every group has committed, as Kafka's own Admin tells it: a line "group" each, and one for each position. */
public final class GroupPositions {
    public static void main(String[] arguments) throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", arguments[0]))) {
            for (ConsumerGroupListing listing : admin.listConsumerGroups().all().get()) {
                String group = listing.groupId();
                System.out.println("group\t" + group);
                Map<TopicPartition, OffsetAndMetadata> positions =
                        admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get();
                for (Map.Entry<TopicPartition, OffsetAndMetadata> entry : positions.entrySet()) {
                    TopicPartition partition = entry.getKey();
                    OffsetAndMetadata position = entry.getValue();
                    byte[] metadata = position.metadata().getBytes(StandardCharsets.UTF_8);
                    System.out.println(String.join("\t", "position", group, partition.topic(),
                            Integer.toString(partition.partition()), Long.toString(position.offset()),
                            Integer.toString(position.leaderEpoch().orElse(-1)),
                            "=" + Base64.getEncoder().encodeToString(metadata)));
                }
            }
        }
    }
}
