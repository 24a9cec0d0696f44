// Writes the files of Spark's checkpoints, each whole and under a name that is given once: on a disk by a link, in an object store
// by a conditional put. Compiled by `java_classes.py` when a session starts.
package headwater;

import java.io.FileOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.nio.file.StandardCopyOption;
import java.util.UUID;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FSDataOutputStreamBuilder;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager;
import org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager;

public class CheckpointFiles extends FileSystemBasedCheckpointFileManager {
    public CheckpointFiles(Path path, Configuration settings) {
        super(path, settings);
    }

    public CheckpointFileManager.CancellableFSDataOutputStream createAtomic(Path path, boolean overwrite) {
        String scheme = this.fs().getScheme();
        try {
            if ("file".equals(scheme)) {
                return LocalFile.open(path, overwrite);
            }
            if ("s3a".equals(scheme)) {
                return new ConditionalPut(open(this.fs(), path, overwrite), path);
            }
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
        return super.createAtomic(path, overwrite);
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

    // Hadoop's own way to write a file starts two processes, `chmod` for the file and for its checksum.
    static class LocalFile extends CheckpointFileManager.CancellableFSDataOutputStream {
        private final java.nio.file.Path temporary;
        private final java.nio.file.Path path;
        private final boolean overwrite;
        private boolean ended = false;

        static LocalFile open(Path path, boolean overwrite) throws IOException {
            java.nio.file.Path target = Paths.get(path.toUri().getPath());
            Files.createDirectories(target.getParent());
            String name = "." + target.getFileName() + "." + UUID.randomUUID() + ".tmp";
            return new LocalFile(target.resolveSibling(name), target, overwrite);
        }

        private LocalFile(java.nio.file.Path temporary, java.nio.file.Path path, boolean overwrite) throws IOException {
            super(new FileOutputStream(temporary.toFile()));
            this.temporary = temporary;
            this.path = path;
            this.overwrite = overwrite;
        }

        public synchronized void close() throws IOException {
            if (this.ended) {
                return;
            }
            this.ended = true;
            try {
                super.close();
                if (this.overwrite) {
                    this.replace();
                } else {
                    this.link();
                }
                // What Hadoop has written about an earlier file of this name does not hold for this one.
                Files.deleteIfExists(this.path.resolveSibling("." + this.path.getFileName() + ".crc"));
            } finally {
                Files.deleteIfExists(this.temporary);
            }
        }

        private void replace() throws IOException {
            Files.move(this.temporary, this.path, StandardCopyOption.ATOMIC_MOVE);
        }

        // Of two links to one name the kernel refuses the second; a rename would replace the first file.
        private void link() throws IOException {
            try {
                Files.createLink(this.path, this.temporary);
            } catch (java.nio.file.FileAlreadyExistsException error) {
                throw refused(error);
            } catch (UnsupportedOperationException error) {
                this.move();
            } catch (java.nio.file.FileSystemException error) {
                this.move();
            }
        }

        // For file systems without links.
        private void move() throws IOException {
            if (Files.exists(this.path)) {
                throw refused(null);
            }
            this.replace();
        }

        private IOException refused(Throwable cause) {
            FileAlreadyExistsException error = new FileAlreadyExistsException(this.path.toString());
            error.initCause(cause);
            return error;
        }

        public synchronized void cancel() {
            if (this.ended) {
                return;
            }
            this.ended = true;
            try {
                super.close();
                Files.deleteIfExists(this.temporary);
            } catch (IOException error) {
                throw new UncheckedIOException(error);
            }
        }
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
