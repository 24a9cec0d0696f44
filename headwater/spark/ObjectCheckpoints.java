// Writes Spark's checkpoint to an object store by conditional puts. Compiled by `object_checkpoints.py` when a session starts.
package headwater;

import java.io.IOException;
import java.io.UncheckedIOException;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FSDataOutputStreamBuilder;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager;
import org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager;

public class ObjectCheckpoints extends FileSystemBasedCheckpointFileManager {
    public ObjectCheckpoints(Path path, Configuration settings) {
        super(path, settings);
    }

    public CheckpointFileManager.CancellableFSDataOutputStream createAtomic(Path path, boolean overwrite) {
        if (!"s3a".equals(this.fs().getScheme())) {
            return super.createAtomic(path, overwrite);
        }
        try {
            return new ConditionalPut(open(this.fs(), path, overwrite), path);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    // An object appears when its stream is closed, and whole: the name needs no other that is renamed to it.
    private static FSDataOutputStream open(FileSystem store, Path path, boolean overwrite) throws IOException {
        FSDataOutputStreamBuilder builder = store.createFile(path);
        builder.overwrite(true);
        if (!overwrite) {
            builder.must("fs.option.create.conditional.overwrite", true);
        }
        return (FSDataOutputStream) builder.build();
    }

    static class ConditionalPut extends CheckpointFileManager.CancellableFSDataOutputStream {
        private final FSDataOutputStream object;
        private final Path path;
        private boolean ended = false;

        ConditionalPut(FSDataOutputStream object, Path path) {
            super(object);
            this.object = object;
            this.path = path;
        }

        public synchronized void close() throws IOException {
            if (this.ended) {
                return;
            }
            this.ended = true;
            try {
                this.object.close();
            } catch (IOException error) {
                // 412: the condition did not hold. 409: another conditional put of the name was under way.
                String why = String.valueOf(error);
                if (!why.contains("Status Code: 412") && !why.contains("Status Code: 409")) {
                    throw error;
                }
                FileAlreadyExistsException exists = new FileAlreadyExistsException(this.path.toString());
                exists.initCause(error);
                throw exists;
            }
        }

        public synchronized void cancel() {
            if (!this.ended) {
                this.ended = true;
                this.object.abort();
            }
        }
    }
}
