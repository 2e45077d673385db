import java.io.FileWriter;
import java.io.PrintStream;
import java.io.Writer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import kafka.server.KafkaConfig;
import kafka.server.KafkaServerStartable;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.Producer;
import org.apache.zookeeper.server.ZooKeeperServerMain;

/**
 * Starts an old broker with its ZooKeeper, has its own producer write a partition with each codec, and writes what its own
 * consumer reads: a line of JSON for each partition. Arguments: folder, two ports, topic, settings of the broker as NAME=VALUE.
 */
public final class OldBroker {
    private static final String[] CODECS = {"none", "gzip", "snappy", "lz4"};

    public static void main(String[] arguments) throws Exception {
        Path folder = Paths.get(arguments[0]);
        int port = Integer.parseInt(arguments[1]);
        int zookeeper = Integer.parseInt(arguments[2]);
        String topic = arguments[3];
        startZooKeeper(folder, zookeeper);
        Properties properties = new Properties();
        properties.put("broker.id", "1");
        properties.put("host.name", "127.0.0.1");
        properties.put("port", "" + port);
        properties.put("zookeeper.connect", "127.0.0.1:" + zookeeper);
        properties.put("log.dirs", folder.resolve("log").toString());
        properties.put("num.partitions", "" + CODECS.length);
        properties.put("auto.create.topics.enable", "true");
        properties.put("log.cleaner.enable", "false");
        properties.put("log.retention.hours", "2000000");
        properties.put("offsets.topic.replication.factor", "1");
        properties.put("offsets.topic.num.partitions", "1");
        properties.put("log.index.size.max.bytes", "1000");
        for (int index = 4; index < arguments.length; index++) {
            String[] pair = arguments[index].split("=");
            properties.put(pair[0], pair[1]);
        }
        KafkaServerStartable server = new KafkaServerStartable(new KafkaConfig(properties));
        server.startup();
        PrintStream out = new PrintStream(folder.resolve("listing.jsonl").toString());
        for (int partition = 0; partition < CODECS.length; partition++) {
            for (int round = 0; round < 2; round++) {
                produce(port, topic, partition);
            }
            List<OldSets.Rec> read = Wire.consume(port, topic, partition);
            out.println("{\"partition\": " + partition + ", \"codec\": \"" + CODECS[partition]
                + "\", \"records\": " + OldSets.listing(read) + "}");
        }
        out.close();
        server.shutdown();
        System.exit(0);
    }

    /** Each call sends its records in one set. */
    private static void produce(int port, String topic, int partition) throws Exception {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", "127.0.0.1:" + port);
        settings.put("compression.type", CODECS[partition]);
        settings.put("linger.ms", "500");
        settings.put("batch.size", "500000");
        settings.put("retries", "5");
        settings.put("acks", "all");
        settings.put("key.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer");
        settings.put("value.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer");
        Producer<byte[], byte[]> producer = new KafkaProducer<>(settings);
        for (OldSets.Rec one : OldSets.records(new Era(), 0, CODECS[partition].toUpperCase(), false)) {
            producer.send(Wire.record(topic, partition, one));
        }
        producer.close();
    }

    private static void startZooKeeper(Path folder, int port) throws Exception {
        Path settings = Files.createDirectories(folder).resolve("zookeeper.properties");
        try (Writer file = new FileWriter(settings.toFile())) {
            file.write("dataDir=" + folder.resolve("zookeeper") + "\nclientPort=" + port + "\nclientPortAddress=127.0.0.1\n");
        }
        Thread thread = new Thread(() -> ZooKeeperServerMain.main(new String[] {settings.toString()}));
        thread.setDaemon(true);
        thread.start();
        Thread.sleep(2000);
    }
}
