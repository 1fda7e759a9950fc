"""Small classes in Java, compiled in Spark's JVM by Janino, which Spark brings for its own generated code."""

from __future__ import annotations

from threading import Lock
from typing import Any
from weakref import WeakKeyDictionary

from pyspark.sql import SparkSession

from penstock.spark.analysis.catalyst import java_class

_compiling = Lock()
#: classes by the gateway of their JVM, then by name
_compiled: WeakKeyDictionary[Any, dict[str, Any]] = WeakKeyDictionary()


def new_object(spark: SparkSession, name: str, source: str, neighbour: Any) -> Any:
    """Return a new object of a class, which is compiled once in each JVM.

    Args:
        spark: the session.
        name: of the class; one source has it.
        source: its text in Java 8, without lambdas.
        neighbour: an object whose classes it sees.

    Raises:
        Py4JJavaError: the source is no Java, or uses classes that the session has not.
    """
    gateway = spark.sparkContext._gateway
    with _compiling:
        classes = _compiled.setdefault(gateway, {})
        if name not in classes:
            compiler = java_class(spark, "org.codehaus.janino.SimpleCompiler")()
            compiler.setParentClassLoader(neighbour.getClass().getClassLoader())
            compiler.cook(source)
            classes[name] = compiler.getClassLoader().loadClass(name)
        found = classes[name]
    return found.newInstance()
