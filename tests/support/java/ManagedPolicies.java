import java.util.Map;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.PolicyViolationException;
import org.apache.kafka.server.policy.AlterConfigPolicy;
import org.apache.kafka.server.policy.CreateTopicPolicy;

/** What whoever runs a cluster for others lets them do with topics: no huge batches, no infinite retention, no single replica. */
public final class ManagedPolicies {
    private static final long LARGEST_BATCH = 20L << 20;
    private static final long LONGEST_MS = 100L * 365 * 86_400_000;
    private static final int FEWEST_REPLICAS = 2;

    private ManagedPolicies() {}

    private static void check(Map<String, String> configs) {
        String batch = configs.get("max.message.bytes");
        if (batch != null && Long.parseLong(batch) > LARGEST_BATCH) {
            throw new PolicyViolationException("max.message.bytes " + batch + " is more than " + LARGEST_BATCH);
        }
        String retention = configs.get("retention.ms");
        if (retention != null && (Long.parseLong(retention) < 0 || Long.parseLong(retention) > LONGEST_MS)) {
            throw new PolicyViolationException("retention.ms " + retention + " is not in 0.." + LONGEST_MS);
        }
    }

    public static final class Create implements CreateTopicPolicy {
        @Override
        public void configure(Map<String, ?> configs) {}

        @Override
        public void validate(RequestMetadata asked) {
            Short replicas = asked.replicationFactor();
            if (replicas != null && replicas < FEWEST_REPLICAS) {
                throw new PolicyViolationException("replication factor " + replicas + " is less than " + FEWEST_REPLICAS);
            }
            if (asked.configs() != null) {
                check(asked.configs());
            }
        }

        @Override
        public void close() {}
    }

    public static final class Alter implements AlterConfigPolicy {
        @Override
        public void configure(Map<String, ?> configs) {}

        @Override
        public void validate(RequestMetadata asked) {
            if (asked.resource().type() == ConfigResource.Type.TOPIC) {
                check(asked.configs());
            }
        }

        @Override
        public void close() {}
    }
}
