import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.PolicyViolationException;
import org.apache.kafka.server.policy.AlterConfigPolicy;
import org.apache.kafka.server.policy.CreateTopicPolicy;

/**
 * Policies that properties of the broker spell: `limits.create.most.NAME=N` refuses larger values of a config, and those below 0, when
 * a topic is created; `limits.create.never=NAME,NAME` refuses any value, and `limits.create.must=NAME,NAME` wants one. So does
 * `limits.alter...`, when configs are changed. `limits.partitions=N` refuses topics of more.
 */
public final class Limits {
    private final Map<String, Long> most = new HashMap<>();
    private final Set<String> never = new HashSet<>();
    private final Set<String> must = new HashSet<>();

    private Limits(String kind, Map<String, ?> properties) {
        String prefix = "limits." + kind + ".most.";
        properties.forEach((name, value) -> {
            if (name.startsWith(prefix)) {
                most.put(name.substring(prefix.length()), Long.parseLong(value.toString()));
            }
        });
        addNames(properties.get("limits." + kind + ".never"), never);
        addNames(properties.get("limits." + kind + ".must"), must);
    }

    private static void addNames(Object names, Set<String> to) {
        if (names != null) {
            to.addAll(Arrays.asList(names.toString().split(",")));
        }
    }

    private void check(Map<String, String> configs) {
        for (String name : must) {
            if (configs.get(name) == null) {
                throw new PolicyViolationException(name + " must be given");
            }
        }
        for (Map.Entry<String, String> config : configs.entrySet()) {
            String name = config.getKey();
            if (config.getValue() == null) {
                continue;
            }
            if (never.contains(name)) {
                throw new PolicyViolationException(name + " may not be set");
            }
            Long limit = most.get(name);
            if (limit != null && (Long.parseLong(config.getValue()) > limit || Long.parseLong(config.getValue()) < 0)) {
                throw new PolicyViolationException(name + " " + config.getValue() + " is not in 0.." + limit);
            }
        }
    }

    public static final class Create implements CreateTopicPolicy {
        private Limits limits;
        private int partitions = Integer.MAX_VALUE;

        @Override
        public void configure(Map<String, ?> properties) {
            limits = new Limits("create", properties);
            if (properties.get("limits.partitions") != null) {
                partitions = Integer.parseInt(properties.get("limits.partitions").toString());
            }
        }

        @Override
        public void validate(RequestMetadata asked) {
            if (asked.numPartitions() != null && asked.numPartitions() > partitions) {
                throw new PolicyViolationException(asked.numPartitions() + " partitions, and not " + partitions + " at most");
            }
            limits.check(asked.configs() == null ? Map.of() : asked.configs());
        }

        @Override
        public void close() {}
    }

    public static final class Alter implements AlterConfigPolicy {
        private Limits limits;

        @Override
        public void configure(Map<String, ?> properties) {
            limits = new Limits("alter", properties);
        }

        @Override
        public void validate(RequestMetadata asked) {
            if (asked.resource().type() == ConfigResource.Type.TOPIC) {
                limits.check(asked.configs());
            }
        }

        @Override
        public void close() {}
    }
}
