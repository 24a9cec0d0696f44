"""Java classes and packages that were resolved once, kept for the life of the JVM.

py4j resolves `jvm.org.apache.spark.…` again on every use, one name after the other. For a name that is a package, Java
looks in every jar, once for each star import: 280 jars for Spark, in each batch of each query. A resolved name never
changes its meaning, so that it can be kept on the Python object it was asked from.
"""

from __future__ import annotations

from typing import Any

from py4j.java_gateway import JavaClass, JavaPackage, JVMView  # type: ignore[import-untyped]


def keep_resolved_names(jvm: Any) -> None:  # Any: py4j has no types
    """Have a view of the JVM look each name up only once."""
    if type(jvm) is JVMView:
        jvm.__class__ = _KeptView


class _KeptNames:
    # Any: a Java class or package.
    def __getattr__(self, name: str) -> Any:
        found = super().__getattr__(name)  # type: ignore[misc]  # the method of the class beside this one
        if isinstance(found, JavaPackage):
            # A name that begins with a capital is a class that is not loaded yet: a later import or jar may bring it.
            if not name[:1].islower():
                return found
            found.__class__ = _KeptPackage
        if isinstance(found, (JavaClass, JavaPackage)):
            vars(self)[name] = found
        return found


class _KeptView(_KeptNames, JVMView):  # type: ignore[misc]  # py4j has no types
    pass


class _KeptPackage(_KeptNames, JavaPackage):  # type: ignore[misc]  # py4j has no types
    pass
