import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.OutputStream;
import java.lang.reflect.Field;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.CompressionType;
import org.apache.kafka.common.record.ControlRecordType;
import org.apache.kafka.common.record.DefaultRecordBatch;
import org.apache.kafka.common.record.EndTransactionMarker;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.MemoryRecordsBuilder;
import org.apache.kafka.common.record.MutableRecordBatch;
import org.apache.kafka.common.record.Record;
import org.apache.kafka.common.record.RecordBatch;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.utils.ByteBufferOutputStream;

/**
 * Kafka's own code behind a pipe. A request is a length, an operation and its arguments; an answer is a length, 0 and a
 * result, or 1 and the error's class and message. Integers are big-endian; bytes and strings are a length (-1: null) and
 * the bytes. It ends when its input does.
 */
public final class Oracle {
    private static final Field HEADER_KEY_BUFFER = headerKeyBuffer();
    private static final Map<String, KafkaProducer<byte[], byte[]>> OPEN_TRANSACTIONS = new HashMap<>();

    private Oracle() {}

    public static void main(String[] arguments) throws IOException {
        OutputStream pipe = new BufferedOutputStream(System.out, 1 << 16);
        System.setOut(System.err);
        DataInputStream in = new DataInputStream(new BufferedInputStream(System.in, 1 << 16));
        DataOutputStream out = new DataOutputStream(pipe);
        while (true) {
            byte[] request;
            try {
                request = in.readNBytes(in.readInt());
            } catch (EOFException end) {
                Runtime.getRuntime().halt(0); // open transactions stay open, as after a crash
                return;
            }
            byte[] answer = answer(request);
            out.writeInt(answer.length);
            out.write(answer);
            out.flush();
        }
    }

    private static byte[] answer(byte[] request) throws IOException {
        ByteArrayOutputStream result = new ByteArrayOutputStream(request.length + 64);
        DataOutputStream out = new DataOutputStream(result);
        try {
            DataInputStream in = new DataInputStream(new ByteArrayInputStream(request));
            out.writeByte(0);
            run(in.readByte(), in, out);
        } catch (Exception | Error error) { // snappy-java, too, throws an Error of its own
            result.reset();
            out.writeByte(1);
            writeBytes(out, utf8(error.getClass().getSimpleName()));
            writeBytes(out, utf8(String.valueOf(error.getMessage())));
        }
        return result.toByteArray();
    }

    private static void run(byte operation, DataInputStream in, DataOutputStream out) throws Exception {
        switch (operation) {
            case 1 -> consume(in, out);
            case 2 -> build(in, out);
            case 3 -> marker(in, out);
            case 4 -> empty(in, out);
            case 5 -> read(in, out);
            case 6 -> produce(in, out);
            case 7 -> end(in);
            default -> throw new IllegalArgumentException("operation " + operation);
        }
    }

    /** Every record from the beginning to the end that the isolation level sees at the start, then begin and end offsets. */
    private static void consume(DataInputStream in, DataOutputStream out) throws Exception {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", readString(in));
        String topic = readString(in);
        settings.put("isolation.level", readString(in));
        Duration patience = Duration.ofMillis(in.readInt());
        settings.put("enable.auto.commit", false);
        settings.put("auto.offset.reset", "none");
        settings.put("max.poll.records", 10_000);
        settings.put("fetch.max.wait.ms", 20); // a fetch that nothing comes to any more holds back its end
        settings.put("max.partition.fetch.bytes", 8 << 20);
        settings.put("default.api.timeout.ms", (int) patience.toMillis());
        try (var consumer =
                new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            List<TopicPartition> partitions = new ArrayList<>();
            consumer.partitionsFor(topic).forEach(p -> partitions.add(new TopicPartition(topic, p.partition())));
            consumer.assign(partitions);
            Map<TopicPartition, Long> begins = consumer.beginningOffsets(partitions);
            Map<TopicPartition, Long> ends = consumer.endOffsets(partitions);
            List<ConsumerRecord<byte[], byte[]>> records = new ArrayList<>();
            begins.forEach(consumer::seek);
            long deadline = System.nanoTime() + patience.toNanos();
            Set<TopicPartition> open = new HashSet<>(partitions);
            open.removeIf(p -> begins.get(p) >= ends.get(p));
            while (!open.isEmpty()) {
                consumer.poll(Duration.ofMillis(100)).forEach(r -> {
                    if (r.offset() < ends.get(new TopicPartition(topic, r.partition()))) {
                        records.add(r);
                    }
                });
                open.removeIf(p -> consumer.position(p) >= ends.get(p));
                if (System.nanoTime() > deadline) {
                    throw new IllegalStateException("did not reach the end of " + open + " of " + ends);
                }
            }
            out.writeInt(records.size());
            for (ConsumerRecord<byte[], byte[]> r : records) {
                out.writeInt(r.partition());
                out.writeLong(r.offset());
                out.writeLong(r.timestamp());
                out.writeByte(r.timestampType().id);
                writeBytes(out, r.key());
                writeBytes(out, r.value());
                writeHeaders(out, r.headers().toArray());
            }
            out.writeInt(partitions.size());
            for (TopicPartition p : partitions) {
                out.writeInt(p.partition());
                out.writeLong(begins.get(p));
                out.writeLong(ends.get(p));
            }
        }
    }

    private static void build(DataInputStream in, DataOutputStream out) throws IOException {
        byte magic = in.readByte();
        Compression compression = compression(readString(in));
        TimestampType type = timestampType(in.readByte());
        long baseOffset = in.readLong();
        long logAppendTime = in.readLong();
        long producerId = in.readLong();
        short producerEpoch = in.readShort();
        int baseSequence = in.readInt();
        boolean transactional = in.readBoolean();
        int leaderEpoch = in.readInt();
        long lastOffset = in.readLong(); // -1: that of the last record
        int count = in.readInt();
        ByteBufferOutputStream buffer = new ByteBufferOutputStream(1 << 16);
        MemoryRecordsBuilder builder = new MemoryRecordsBuilder(buffer, magic, compression, type, baseOffset, logAppendTime,
                producerId, producerEpoch, baseSequence, transactional, false, leaderEpoch, Integer.MAX_VALUE);
        for (int i = 0; i < count; i++) {
            long offset = in.readLong();
            long timestamp = in.readLong();
            in.readByte(); // the batch's timestamp type rules
            byte[] key = readBytes(in);
            byte[] value = readBytes(in);
            builder.appendWithOffset(offset, timestamp, key, value, readHeaders(in));
        }
        if (lastOffset >= 0) {
            builder.overrideLastOffset(lastOffset);
        }
        writeBuffer(out, builder.build().buffer());
    }

    private static void marker(DataInputStream in, DataOutputStream out) throws IOException {
        long offset = in.readLong();
        long timestamp = in.readLong();
        int leaderEpoch = in.readInt();
        long producerId = in.readLong();
        short producerEpoch = in.readShort();
        ControlRecordType type = in.readBoolean() ? ControlRecordType.COMMIT : ControlRecordType.ABORT;
        EndTransactionMarker marker = new EndTransactionMarker(type, in.readInt());
        writeBuffer(out, MemoryRecords.withEndTransactionMarker(offset, timestamp, leaderEpoch, producerId, producerEpoch,
                marker).buffer());
    }

    /** The batch without records that compaction keeps for its producer's sequence. */
    private static void empty(DataInputStream in, DataOutputStream out) throws IOException {
        ByteBuffer buffer = ByteBuffer.allocate(DefaultRecordBatch.RECORD_BATCH_OVERHEAD);
        long baseOffset = in.readLong();
        long lastOffset = in.readLong();
        long producerId = in.readLong();
        short producerEpoch = in.readShort();
        int baseSequence = in.readInt();
        DefaultRecordBatch.writeEmptyHeader(buffer, RecordBatch.MAGIC_VALUE_V2, producerId, producerEpoch, baseSequence,
                baseOffset, lastOffset, in.readInt(), TimestampType.CREATE_TIME, in.readLong(), in.readBoolean(), false);
        buffer.flip();
        writeBuffer(out, buffer);
    }

    private static void read(DataInputStream in, DataOutputStream out) throws IOException {
        MemoryRecords records = MemoryRecords.readableRecords(ByteBuffer.wrap(readBytes(in)));
        List<byte[]> batches = new ArrayList<>();
        for (MutableRecordBatch batch : records.batches()) {
            batch.ensureValid();
            batches.add(readBatch(batch));
        }
        out.writeInt(records.validBytes());
        out.writeInt(batches.size());
        for (byte[] batch : batches) {
            out.write(batch);
        }
    }

    private static byte[] readBatch(MutableRecordBatch batch) throws IOException {
        ByteArrayOutputStream result = new ByteArrayOutputStream();
        DataOutputStream out = new DataOutputStream(result);
        out.writeByte(batch.magic());
        writeBytes(out, utf8(batch.compressionType().name));
        out.writeByte(batch.timestampType().id);
        out.writeLong(batch.baseOffset());
        out.writeLong(batch.lastOffset());
        out.writeLong(batch.maxTimestamp());
        out.writeLong(batch.producerId());
        out.writeShort(batch.producerEpoch());
        out.writeInt(batch.baseSequence());
        out.writeBoolean(batch.isTransactional());
        out.writeBoolean(batch.isControlBatch());
        out.writeInt(batch.partitionLeaderEpoch());
        out.writeInt(batch.sizeInBytes());
        List<Record> records = new ArrayList<>();
        batch.forEach(records::add);
        out.writeInt(records.size());
        for (Record r : records) {
            r.ensureValid();
            out.writeLong(r.offset());
            out.writeLong(r.timestamp());
            out.writeByte(batch.timestampType().id);
            writeBytes(out, bytes(r.key()));
            writeBytes(out, bytes(r.value()));
            writeHeaders(out, r.headers());
        }
        return result.toByteArray();
    }

    private static void produce(DataInputStream in, DataOutputStream out) throws Exception {
        Map<String, Object> settings = new HashMap<>();
        for (int left = in.readInt(); left > 0; left--) {
            settings.put(readString(in), readString(in));
        }
        String topic = readString(in);
        String id = (String) settings.get("transactional.id");
        KafkaProducer<byte[], byte[]> producer = id == null ? null : OPEN_TRANSACTIONS.get(id);
        if (producer == null) {
            producer = new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
            if (id != null) {
                OPEN_TRANSACTIONS.put(id, producer);
                producer.initTransactions();
                producer.beginTransaction();
            }
        }
        try {
            List<Future<RecordMetadata>> answers = new ArrayList<>();
            for (int left = in.readInt(); left > 0; left--) {
                answers.add(producer.send(producerRecord(topic, in)));
            }
            producer.flush();
            out.writeInt(answers.size());
            for (Future<RecordMetadata> answer : answers) {
                out.writeLong(answer.get().offset());
            }
        } finally {
            if (id == null) {
                producer.close();
            }
        }
    }

    private static ProducerRecord<byte[], byte[]> producerRecord(String topic, DataInputStream in) throws IOException {
        int partition = in.readInt();
        in.readLong(); // the broker gives offsets
        long timestamp = in.readLong();
        in.readByte(); // and the topic's timestamp type
        byte[] key = readBytes(in);
        byte[] value = readBytes(in);
        return new ProducerRecord<>(topic, partition < 0 ? null : partition, timestamp, key, value, List.of(readHeaders(in)));
    }

    private static void end(DataInputStream in) throws IOException {
        KafkaProducer<byte[], byte[]> producer = OPEN_TRANSACTIONS.remove(readString(in));
        try (producer) {
            if (in.readBoolean()) {
                producer.commitTransaction();
            } else {
                producer.abortTransaction();
            }
        }
    }

    private static Compression compression(String name) {
        return Compression.of(CompressionType.forName(name)).build();
    }

    private static TimestampType timestampType(byte id) {
        for (TimestampType type : TimestampType.values()) {
            if (type.id == id) {
                return type;
            }
        }
        throw new IllegalArgumentException("timestamp type " + id);
    }

    /** The bytes as they came: `key()` would decode them, and put a replacement for what is not UTF-8. */
    private static byte[] rawKey(Header header) {
        try {
            ByteBuffer raw = (ByteBuffer) HEADER_KEY_BUFFER.get(header);
            return raw == null ? utf8(header.key()) : bytes(raw);
        } catch (IllegalAccessException error) {
            throw new IllegalStateException(error);
        }
    }

    private static Field headerKeyBuffer() {
        try {
            Field field = RecordHeader.class.getDeclaredField("keyBuffer");
            field.setAccessible(true);
            return field;
        } catch (NoSuchFieldException error) {
            throw new IllegalStateException(error);
        }
    }

    private static void writeHeaders(DataOutputStream out, Header[] headers) throws IOException {
        out.writeInt(headers.length);
        for (Header header : headers) {
            writeBytes(out, rawKey(header));
            writeBytes(out, header.value());
        }
    }

    private static Header[] readHeaders(DataInputStream in) throws IOException {
        Header[] headers = new Header[in.readInt()];
        for (int i = 0; i < headers.length; i++) {
            headers[i] = new RecordHeader(readString(in), readBytes(in));
        }
        return headers;
    }

    private static byte[] bytes(ByteBuffer buffer) {
        if (buffer == null) {
            return null;
        }
        ByteBuffer view = buffer.duplicate();
        byte[] copy = new byte[view.remaining()];
        view.get(copy);
        return copy;
    }

    private static byte[] utf8(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private static void writeBuffer(DataOutputStream out, ByteBuffer buffer) throws IOException {
        writeBytes(out, bytes(buffer));
    }

    private static void writeBytes(DataOutputStream out, byte[] bytes) throws IOException {
        out.writeInt(bytes == null ? -1 : bytes.length);
        if (bytes != null) {
            out.write(bytes);
        }
    }

    private static byte[] readBytes(DataInputStream in) throws IOException {
        int length = in.readInt();
        return length < 0 ? null : in.readNBytes(length);
    }

    private static String readString(DataInputStream in) throws IOException {
        return new String(readBytes(in), StandardCharsets.UTF_8);
    }
}
