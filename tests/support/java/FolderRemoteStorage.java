import java.io.FileInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.stream.Stream;
import org.apache.kafka.server.log.remote.storage.LogSegmentData;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata.CustomMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteResourceNotFoundException;
import org.apache.kafka.server.log.remote.storage.RemoteStorageException;
import org.apache.kafka.server.log.remote.storage.RemoteStorageManager;

/**
 * A remote tier in a folder, which several brokers may share. The file "behaviour" in it says how late records are read,
 * `<topic or *>=<milliseconds>`, or that they are not, `<topic or *>=fail`; also of reads that are under way. The file
 * "reads" gets a line when such a read is begun, and another one when its records are handed out, or it is cancelled.
 */
public final class FolderRemoteStorage implements RemoteStorageManager {
    private Path folder;

    @Override
    public void configure(Map<String, ?> configs) {
        folder = Path.of((String) configs.get("folder"));
    }

    @Override
    public Optional<CustomMetadata> copyLogSegmentData(RemoteLogSegmentMetadata segment, LogSegmentData data)
            throws RemoteStorageException {
        try {
            Path place = Files.createDirectories(place(segment));
            Files.copy(data.logSegment(), place.resolve("records"));
            Files.copy(data.offsetIndex(), place.resolve(IndexType.OFFSET.name()));
            Files.copy(data.timeIndex(), place.resolve(IndexType.TIMESTAMP.name()));
            Files.copy(data.producerSnapshotIndex(), place.resolve(IndexType.PRODUCER_SNAPSHOT.name()));
            if (data.transactionIndex().isPresent()) {
                Files.copy(data.transactionIndex().get(), place.resolve(IndexType.TRANSACTION.name()));
            }
            ByteBuffer epochs = data.leaderEpochIndex().duplicate();
            byte[] bytes = new byte[epochs.remaining()];
            epochs.get(bytes);
            Files.write(place.resolve(IndexType.LEADER_EPOCH.name()), bytes);
            return Optional.empty();
        } catch (IOException error) {
            throw new RemoteStorageException(error);
        }
    }

    @Override
    public InputStream fetchLogSegment(RemoteLogSegmentMetadata segment, int start) throws RemoteStorageException {
        return fetchLogSegment(segment, start, Integer.MAX_VALUE);
    }

    @Override
    public InputStream fetchLogSegment(RemoteLogSegmentMetadata segment, int start, int end)
            throws RemoteStorageException {
        note("begun", segment);
        behave(segment.topicIdPartition().topic());
        InputStream records = open(segment, "records");
        try {
            records.skipNBytes(start);
        } catch (IOException error) {
            throw new RemoteStorageException(error);
        }
        note("served", segment);
        return records; // the broker reads no further than it wants
    }

    @Override
    public InputStream fetchIndex(RemoteLogSegmentMetadata segment, IndexType type) throws RemoteStorageException {
        return open(segment, type.name());
    }

    @Override
    public void deleteLogSegmentData(RemoteLogSegmentMetadata segment) throws RemoteStorageException {
        try (Stream<Path> files = Files.walk(place(segment))) {
            for (Path file : files.sorted(Comparator.reverseOrder()).toList()) {
                Files.delete(file);
            }
        } catch (NoSuchFileException gone) {
            return;
        } catch (IOException error) {
            throw new RemoteStorageException(error);
        }
    }

    @Override
    public void close() {}

    private Path place(RemoteLogSegmentMetadata segment) {
        return folder.resolve("segments").resolve(segment.remoteLogSegmentId().id().toString());
    }

    private InputStream open(RemoteLogSegmentMetadata segment, String name) throws RemoteStorageException {
        try {
            return new FileInputStream(place(segment).resolve(name).toFile());
        } catch (IOException error) {
            throw new RemoteResourceNotFoundException(error);
        }
    }

    private void behave(String topic) throws RemoteStorageException {
        long begun = System.nanoTime();
        try {
            for (String order = order(topic); !isOver(order, begun); order = order(topic)) {
                Thread.sleep(20);
            }
        } catch (InterruptedException cancelled) { // the broker gave this read up
            note("cancelled", topic);
            throw new RemoteStorageException(cancelled);
        }
    }

    private static boolean isOver(String order, long begun) throws RemoteStorageException {
        if (order.equals("fail")) {
            throw new RemoteStorageException("the test wants this read to fail");
        }
        return System.nanoTime() - begun >= Long.parseLong(order) * 1_000_000;
    }

    private String order(String topic) {
        Properties behaviour = new Properties();
        try (InputStream file = Files.newInputStream(folder.resolve("behaviour"))) {
            behaviour.load(file);
        } catch (IOException none) {
            return "0";
        }
        return behaviour.getProperty(topic, behaviour.getProperty("*", "0"));
    }

    private void note(String what, RemoteLogSegmentMetadata segment) {
        note(what, segment.topicIdPartition().topicPartition() + " " + segment.startOffset());
    }

    private void note(String what, String of) {
        List<String> line = List.of(what + " " + of);
        try {
            Files.write(folder.resolve("reads"), line, StandardOpenOption.CREATE, StandardOpenOption.APPEND);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }
}
