// A streaming sink for rows that say what a task has staged. Python in the driver commits them, once in each micro-batch.
// Compiled by `java_classes.py` when a session starts; used by `topic_query.py`.
package headwater;

import java.io.Serializable;
import java.util.Collections;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.BiFunction;
import org.apache.spark.SparkContext;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.catalog.SupportsWrite;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.write.DataWriter;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.PhysicalWriteInfo;
import org.apache.spark.sql.connector.write.SupportsTruncate;
import org.apache.spark.sql.connector.write.Write;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.apache.spark.sql.connector.write.streaming.StreamingDataWriterFactory;
import org.apache.spark.sql.connector.write.streaming.StreamingWrite;
import org.apache.spark.sql.internal.connector.SupportsStreamingUpdateAsAppend;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

// Its compiler makes no bridges for type parameters: methods of generic interfaces take and return objects.
public class StagedRows implements TableProvider {
    private static final Map DRIVERS = new ConcurrentHashMap();
    private static final String BATCH_ID = "streaming.sql.batchId";
    private static final String RUN_ID = "spark.jobGroup.id";

    // `driver` is called with the name of a step ("begin", "commit", "abort") and a text of lines: query, run and number of the
    // micro-batch, and then what tasks have staged.
    public static void register(String name, BiFunction driver) {
        DRIVERS.put(name, driver);
    }

    public static void forget(String name) {
        DRIVERS.remove(name);
    }

    public StructType inferSchema(CaseInsensitiveStringMap options) {
        return new StructType().add("staged", "string");
    }

    public Table getTable(StructType schema, Transform[] partitioning, Map properties) {
        return new Target((BiFunction) DRIVERS.get(properties.get("driver")));
    }

    static class Target implements SupportsWrite {
        private final BiFunction driver;

        Target(BiFunction driver) {
            this.driver = driver;
        }

        public String name() {
            return "topic";
        }

        public StructType schema() {
            return new StructType().add("staged", "string");
        }

        public Set capabilities() {
            return Collections.singleton(TableCapability.STREAMING_WRITE);
        }

        public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
            return new Builder(this.driver, info.queryId());
        }
    }

    // All output modes are taken: rows of a topic with a key replace one another.
    static class Builder implements WriteBuilder, SupportsTruncate, SupportsStreamingUpdateAsAppend {
        private final BiFunction driver;
        private final String query;

        Builder(BiFunction driver, String query) {
            this.driver = driver;
            this.query = query;
        }

        public WriteBuilder truncate() {
            return this;
        }

        public Write build() {
            return new OneWrite(this.driver, this.query);
        }
    }

    static class OneWrite implements Write, StreamingWrite {
        private final BiFunction driver;
        private final String query;

        OneWrite(BiFunction driver, String query) {
            this.driver = driver;
            this.query = query;
        }

        public StreamingWrite toStreaming() {
            return this;
        }

        public boolean useCommitCoordinator() {
            return false;
        }

        public StreamingDataWriterFactory createStreamingWriterFactory(PhysicalWriteInfo info) {
            this.call("begin", SparkContext.getOrCreate().getLocalProperty(BATCH_ID), new WriterCommitMessage[0]);
            return new Factory();
        }

        public void commit(long batch, WriterCommitMessage[] messages) {
            this.call("commit", String.valueOf(batch), messages);
        }

        public void abort(long batch, WriterCommitMessage[] messages) {
            this.call("abort", String.valueOf(batch), messages);
        }

        private void call(String step, String batch, WriterCommitMessage[] messages) {
            String run = SparkContext.getOrCreate().getLocalProperty(RUN_ID);
            StringBuilder lines = new StringBuilder();
            lines.append(this.query).append('\n').append(run == null ? "" : run).append('\n').append(batch);
            for (int number = 0; number < messages.length; number++) {
                if (messages[number] != null) {
                    lines.append(((Message) messages[number]).staged);
                }
            }
            this.driver.apply(step, lines.toString());
        }
    }

    static class Factory implements StreamingDataWriterFactory {
        public DataWriter createWriter(int partition, long task, long batch) {
            return new Writer();
        }
    }

    static class Writer implements DataWriter {
        private final StringBuilder staged = new StringBuilder();

        public void write(Object row) {
            this.staged.append('\n').append(((InternalRow) row).getUTF8String(0).toString());
        }

        public WriterCommitMessage commit() {
            return new Message(this.staged.toString());
        }

        public void abort() {
        }

        public void close() {
        }
    }

    static class Message implements WriterCommitMessage, Serializable {
        final String staged;

        Message(String staged) {
            this.staged = staged;
        }
    }
}
