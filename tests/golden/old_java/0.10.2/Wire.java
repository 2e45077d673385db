import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;

/** Records of the producer and of the consumer of 0.10.2 and 0.11. */
final class Wire {
    static ProducerRecord<byte[], byte[]> record(String topic, int partition, OldSets.Rec one) {
        return new ProducerRecord<>(topic, partition, one.time < 0 ? OldSets.TIME - 5 : one.time, one.key, one.value);
    }

    static List<OldSets.Rec> consume(int port, String topic, int partition) {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", "127.0.0.1:" + port);
        settings.put("key.deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer");
        settings.put("value.deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer");
        settings.put("enable.auto.commit", "false");
        List<OldSets.Rec> found = new ArrayList<>();
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings)) {
            TopicPartition source = new TopicPartition(topic, partition);
            consumer.assign(Collections.singletonList(source));
            consumer.seekToEnd(Collections.singletonList(source));
            long end = consumer.position(source);
            consumer.seekToBeginning(Collections.singletonList(source));
            while (consumer.position(source) < end) {
                for (ConsumerRecord<byte[], byte[]> one : consumer.poll(100)) {
                    found.add(new OldSets.Rec(one.offset(), one.timestamp(), one.timestampType().id, one.key(), one.value()));
                }
            }
        }
        return found;
    }
}
