"""Files that the JVM of the tests writes: with permissions that it sets itself.

Hadoop's local file system, without its native library, starts a `chmod` for each file and folder that it creates: of a small batch a
third of the processor time (docs/decisions/0026). Here a class does it that Spark's own compiler makes. Checksums and names remain.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

_CLASS = "penstock.tests.LocalFiles"
_SOURCE = """
package penstock.tests;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.attribute.PosixFilePermissions;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;

public final class LocalFiles extends LocalFileSystem {
  public LocalFiles() {
    super(new Raw());
  }

  public static final class Raw extends RawLocalFileSystem {
    public void setPermission(Path path, FsPermission permission) throws IOException {
      if (permission.getStickyBit()) {
        super.setPermission(path, permission);
      } else {
        String letters =
            permission.getUserAction().SYMBOL + permission.getGroupAction().SYMBOL + permission.getOtherAction().SYMBOL;
        Files.setPosixFilePermissions(pathToFile(path).toPath(), PosixFilePermissions.fromString(letters));
      }
    }
  }
}
"""


def set_permissions_in_the_jvm(spark: SparkSession) -> None:
    """Replaces Hadoop's local file system in the JVM of a session, for good."""
    jvm: Any = spark._jvm
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.cook(_SOURCE)
    own = compiler.getClassLoader().loadClass(_CLASS)
    file_systems = jvm.org.apache.hadoop.fs.FileSystem
    configuration = spark._jsc.hadoopConfiguration()
    # with the first one Hadoop notes which there are
    file_systems.getLocal(configuration)
    by_scheme = jvm.java.lang.Class.forName("org.apache.hadoop.fs.FileSystem").getDeclaredField(
        "SERVICE_FILE_SYSTEMS"
    )
    by_scheme.setAccessible(True)
    by_scheme.get(None).put("file", own)
    file_systems.closeAll()
    made = file_systems.getLocal(configuration).getClass().getName()
    assert made == _CLASS, made
