import java.util.ArrayList;
import java.util.List;
import kafka.api.FetchRequestBuilder;
import kafka.javaapi.FetchResponse;
import kafka.javaapi.consumer.SimpleConsumer;
import kafka.message.MessageAndOffset;
import org.apache.kafka.clients.producer.ProducerRecord;

/** Records of the producer and of the consumer of 0.8.2. */
final class Wire {
    static ProducerRecord<byte[], byte[]> record(String topic, int partition, OldSets.Rec one) {
        return new ProducerRecord<>(topic, partition, one.key, one.value);
    }

    static List<OldSets.Rec> consume(int port, String topic, int partition) {
        SimpleConsumer consumer = new SimpleConsumer("127.0.0.1", port, 10_000, 1 << 20, "golden");
        FetchResponse answer = consumer.fetch(new FetchRequestBuilder().addFetch(topic, partition, 0, 1 << 20).build());
        List<OldSets.Rec> found = new ArrayList<>();
        for (MessageAndOffset one : answer.messageSet(topic, partition)) {
            one.message().ensureValid();
            found.add(new OldSets.Rec(
                one.offset(), -1, -1, OldSets.bytes(one.message().key()), OldSets.bytes(one.message().payload())));
        }
        consumer.close();
        return found;
    }
}
