"""What any process of ours is, whatever it does: logs, signals, threads, memory, text for terminals, Java.

- ahead: work of many items side by side, as far ahead of whoever takes the results as threads need, and no further
- backoff: pauses between tries: each twice as long as the one before, up to the longest
- budget: bytes that may be in memory at once, of what is asked for and of what has come
- caches: where it is kept what was made once so that later starts are quick
- children: child processes that go with this one, however it goes: also when it is killed
- columns: values of one kind side by side
- defects: defects of ours, and of libraries: the traceback goes to a file, of which the user is told the name
- edition: which archiver this is: version and sources
- endpoint: where something listens: a host and its port, and the addresses that begin with them
- failpoints: named places between two effects, at which a test may have the process killed, or stopped
- jars: jars from the Maven registry
- java: the Java of this machine, and programs of it that run to their end
- json_columns: A JSON object whose values are long lists, read piece by piece
- json_values: JSON that anybody may have written: each value of its kind and within its bounds, or a ValueError
- jvm_classes: class data sharing: one JVM writes down what it has loaded, and later ones that map this file start in half the time
- logs: what is seen of a run: logs, the names of their fields, and progress
- loopback: addresses of this machine alone: what goes there in clear, nobody else on the way can read
- mask: what must not be shown of a text that somebody wrote into the configuration
- memory: how our processes keep memory; each sets it once, when it begins
- progress: how far a long activity is, and how long it still takes
- shell: commands that a user may paste into a POSIX shell
- signals: SIGTERM and SIGINT as an event that the work looks at
- silence: tells when this process was silent for so long that others may have taken its partitions over
- tampering: who else could have put code into a place, or put another place there
- text: text that may come from anywhere, spelled so that a terminal shows all of it and does nothing else
- workers: threads for what blocks: codec and puts
"""
