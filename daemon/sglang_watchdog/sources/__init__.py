"""Async edges that produce blocks of bytes, samples and probe answers.

A byte source is an async generator of `Block`, `Moved`, `Gap`, `Opened` and `Watermark`; its consumer sets the pace. `Block.after` and
`Moved.after` are the place to resume from: stored in one transaction with what came of the bytes before it, each byte is dealt with
exactly once over a kill at any moment. `places.open_place` opens the source for a place as the configuration names it.

    tail      a log file through rotation, truncation, packing (`Tail.step`: synchronous); follow drives it, hints wakes it
    globs     one tail for each file of a pattern          container   where docker and the kubelet keep their files
    journal   a supervised journalctl                      kernel      /dev/kmsg, else the journal
    stdin     a pipe that ends                             process     processes, port, memory kills; /server_info once
    discover  servers that run here, and where they write  position    what is stored
"""
