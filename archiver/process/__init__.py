"""What any process of ours needs, whatever it does: logs, signals, threads, memory, text for terminals, Java.

- ahead: work of many items side by side, as far ahead of whoever takes the results as threads need, and no further
- backoff: pauses between tries: each twice as long as the one before, up to the longest
- budget: a budget of bytes in memory at once: of answers that are asked for, and of those that have come
- caches: where compiled code is kept, so that later starts are quick: beside our own code, or in the user's cache
- children: child processes that end with this one, however it ends: also when it is killed
- columns: values of one kind side by side
- declared_metrics: the declaration of a metric: its name, kind, meaning and labels; and the family that Prometheus is shown of it
- defects: defects of ours, and of libraries: the traceback goes to a file, of which the user is told the name
- edition: which archiver this is: version and sources
- endpoint: host and port of an endpoint, and the parts of an http address
- failpoints: named places between two effects, at which a test may have the process killed, or stopped
- jars: jars from the Maven registry
- java: the Java of this machine, and programs of it that run to their end
- json_values: reads JSON that anybody may have written: each value has its kind and is within its bounds, or a ValueError is raised
- jvm_classes: class data sharing: one JVM writes down what it has loaded, and later ones that map this file start in half the time
- logs: logs of a run, the names of their fields, and the logger of progress
- loopback: loopback addresses: clear text that is sent to them never leaves this machine
- mask: masks what may be secret in a text that is shown: users in addresses, queries, tokens
- memory: garbage collection and malloc of our processes; each process tunes both once, when it begins
- progress: how far a long activity is, and how long it still takes
- shell: commands that a user may paste into a POSIX shell
- signals: SIGTERM and SIGINT as an event that the work waits for
- silence: counts how often this process was silent for so long that others may have taken its partitions over
- tampering: finds who else could have changed a file or folder, or put another one in its place
- text: texts for people; text from elsewhere is spelled so that a terminal shows all of it, and obeys none of it
- workers: threads for what blocks: codec and puts
"""
