"""A student's process, and the walls around it.

Three kinds of walls: bubblewrap (Linux), a container (Docker or Podman, for macOS and Windows),
or none when the teacher says so. Behind a wall there is no network, and nothing to read but the
Python installation and the one public program `student.py`. The clock, the limit on printing and
the judging stay on this side.
"""

import json
import os
import platform
import queue
import shutil
import signal
import struct
import subprocess
import sys
import sysconfig
import tempfile
import threading
import uuid
from dataclasses import dataclass
from pathlib import Path

from tools.notebooks import BookError

PROGRAM = Path(__file__).with_name("student.py")
PRELOAD = ("torch",)  # what most answers import: loaded before the clock of the first cell starts
IMAGE = "attention-grader"  # what the container recipe is built as
STARTUP = 120  # seconds in which Python and torch must be loaded, on a slow machine too
REPLY = 2 * 2**20  # bytes of one reply: a hundred times what an answer needs
PYTHON_OPTIONS = ("-I", "-B")  # no path, start-up file or setting of the user
WORK = "/students-work"  # the student's folder behind the wall: empty, and gone afterwards


@dataclass(frozen=True)
class Limits:
    """What one submission may use; `call_seconds` is for one cell or one call of an answer."""

    seconds: int = 60
    call_seconds: int = 10
    memory_mib: int = 2048
    output_kb: int = 1000
    file_mb: int = 20

    def arguments(self):
        numbers = (self.memory_mib * 2**20, self.file_mb * 10**6, self.seconds)
        return [*map(str, numbers), *PRELOAD]


class Lost(Exception):
    """The student's process is gone; `reason` is one of late, ended, flood, huge, noise."""

    def __init__(self, reason):
        super().__init__(reason)
        self.reason = reason


# Numbers of system calls, from Linux's headers: (AUDIT_ARCH, clone, clone3, refused). Refused are
# fork, vfork, unshare, shmget, memfd_create, memfd_secret, io_uring_setup: new processes, own
# namespaces, and memory that the limit on memory does not see; socket, add_key, request_key,
# keyctl: families of sockets and rings of keys that no namespace holds; ptrace,
# process_vm_readv, process_vm_writev, bpf, perf_event_open, userfaultfd: no answer needs them.
CALLS = {
    "x86_64": (
        *(0xC000003E, 56, 435),
        (57, 58, 272, 29, 319, 447, 425, 41, 248, 249, 250, 101, 310, 311, 321, 298, 323),
    ),
    "aarch64": (  # has neither fork nor vfork
        *(0xC00000B7, 220, 435),
        (97, 194, 279, 447, 425, 198, 217, 218, 219, 117, 270, 271, 280, 241, 282),
    ),
}


def seccomp_filter():
    """A filter of system calls (classic BPF) that refuses new processes, not new threads.

    A limit on the number of processes does not bind root; this does. `clone3`, whose flags a
    filter cannot see, is answered "no such call", upon which the C library takes `clone`.
    """
    arch, clone, clone3, refused = CALLS[platform.machine()]
    load, equal, has, give = 0x20, 0x15, 0x45, 0x06
    allow, kill, refuse, unknown = 0x7FFF0000, 0x80000000, 0x00050001, 0x00050026
    code = [(load, 0, 0, 4), (equal, 1, 0, arch), (give, 0, 0, kill), (load, 0, 0, 0)]
    if arch == CALLS["x86_64"][0]:  # the x32 calls, which repeat all others
        code += [(0x35, 0, 1, 0x40000000), (give, 0, 0, refuse)]
    code += [(equal, 0, 1, clone3), (give, 0, 0, unknown)]
    for number in refused:
        code += [(equal, 0, 1, number), (give, 0, 0, refuse)]
    code += [(equal, 0, 3, clone), (load, 0, 0, 16), (has, 1, 0, 0x10000), (give, 0, 0, refuse)]
    code += [(give, 0, 0, allow)]
    return b"".join(struct.pack("<HBBI", *line) for line in code)


def python_folders():
    """The folders that the interpreter and its packages stand in, and /usr."""
    paths = (sys.prefix, sys.base_prefix, sysconfig.get_path("purelib"))
    folders = {place for path in paths for place in (Path(path), Path(path).resolve())}
    return [Path("/usr"), *sorted(path for path in folders if not path.is_relative_to("/usr"))]


def environment(home):
    """All that the student's process knows of its surroundings."""
    return {
        "PATH": os.defpath,
        "HOME": home,
        "IPYTHONDIR": home,
        "MPLCONFIGDIR": home,
        "USER": "student",
        "LANG": "C.UTF-8",
        "MPLBACKEND": "Agg",
        "OMP_NUM_THREADS": "1",
    }


class Bubblewrap:
    """Namespaces of Linux, made by the program bwrap without any right of an administrator."""

    name = "bubblewrap"
    told = "bubblewrap: no network, no files but those of Python"

    @staticmethod
    def problem():
        """Why it cannot be used here, or None."""
        if platform.machine() not in CALLS or not shutil.which("bwrap"):
            return "there is no bubblewrap (Debian and Ubuntu: sudo apt-get install bubblewrap)"
        command = ["bwrap", "--unshare-all", "--ro-bind", "/", "/", "--proc", "/proc", "true"]
        done = subprocess.run(command, capture_output=True, text=True)
        return f"bubblewrap does not work ({done.stderr.strip()})" if done.returncode else None

    def __init__(self, limits, private=()):
        for folder in python_folders():
            for path in private:
                if Path(path).resolve().is_relative_to(folder):
                    raise BookError(f"{path} lies in {folder}, which students' code can read")
        self.limits = limits
        # the size of a folder in memory can be limited from version 0.7 on
        sizes = subprocess.run(["bwrap", "--help"], capture_output=True, text=True).stdout
        space = 5 * limits.file_mb * 10**6
        self.size = ["--size", str(space)] if "--size" in sizes else []

    def command(self):
        # as process 1: otherwise bwrap is, and shows the teacher's environment in /proc/1
        command = ["bwrap", "--unshare-all", "--as-pid-1", "--die-with-parent", "--new-session"]
        command += ["--clearenv"]
        command += ["--cap-drop", "ALL", "--uid", "1000", "--gid", "1000"]
        for name, value in environment(WORK).items():
            command += ["--setenv", name, value]
        for path in ("/lib", "/lib64", "/bin"):
            if Path(path).is_symlink():
                command += ["--symlink", os.readlink(path), path]
            elif Path(path).exists():
                command += ["--ro-bind", path, path]
        for path in ("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d"):
            command += ["--ro-bind-try", path, path]
        for path in (*python_folders(), "/sys/devices/system/cpu"):
            command += ["--ro-bind-try", str(path), str(path)]
        command += ["--ro-bind", str(PROGRAM), "/grader/student.py"]
        command += ["--proc", "/proc", "--dev", "/dev", "--remount-ro", "/dev"]
        command += [*self.size, "--tmpfs", WORK, "--chdir", WORK, "--remount-ro", "/"]
        return command

    def start(self):
        with tempfile.TemporaryFile() as held:
            held.write(seccomp_filter())
            held.flush()
            held.seek(0)
            command = [*self.command(), "--seccomp", str(held.fileno()), "--"]
            command += [sys.executable, *PYTHON_OPTIONS, "/grader/student.py"]
            command += self.limits.arguments()
            return launch(command, pass_fds=[held.fileno()])

    def stop(self, process):
        process.kill()  # all within the namespaces dies with it


class Container:
    """A container of Docker or Podman, built once from `assignments/container`."""

    def __init__(self, limits, private=(), program="docker"):
        self.limits, self.program, self.names = limits, program, {}
        self.told = f"a container of {program}: no network, no files of this computer"

    @classmethod
    def problem(cls, program):
        if not shutil.which(program):
            return f"there is no {program}"
        done = subprocess.run([program, "image", "inspect", IMAGE], capture_output=True)
        return f"{program} has no image {IMAGE}" if done.returncode else None

    def command(self, name):
        memory, size = f"{self.limits.memory_mib}m", 5 * self.limits.file_mb * 10**6
        command = [self.program, "run", "--rm", "--interactive", "--name", name]
        command += ["--network", "none", "--read-only", "--tmpfs", f"{WORK}:rw,size={size}"]
        command += ["--memory", memory, "--memory-swap", memory, "--pids-limit", "64"]
        command += ["--cap-drop", "ALL", "--security-opt", "no-new-privileges"]
        command += ["--user", "65534:65534", "--workdir", WORK]
        for key, value in environment(WORK).items():
            if key != "PATH":  # the image knows where its Python is
                command += ["--env", f"{key}={value}"]
        command += [IMAGE, "python", *PYTHON_OPTIONS, "/grader/student.py"]
        return command + self.limits.arguments()

    def start(self):
        name = f"{IMAGE}-{uuid.uuid4().hex}"
        process = launch(self.command(name))
        self.names[process.pid] = name
        return process

    def stop(self, process):
        # ending the client does not end the container
        name = self.names.pop(process.pid)
        subprocess.run([self.program, "kill", name], capture_output=True)
        process.kill()


class NoWalls:
    """Nothing but a folder of its own and the limits that Python can set."""

    name = "none"
    told = "NO ISOLATION: students' code can read and change what you can"

    def __init__(self, limits, private=()):
        self.limits, self.homes = limits, {}

    def start(self):
        home = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        command = [sys.executable, *PYTHON_OPTIONS, str(PROGRAM), *self.limits.arguments()]
        keep = ("SYSTEMROOT", "TEMP", "TMP")  # Windows does not start Python without the first
        kept = {name: os.environ[name] for name in keep if name in os.environ}
        settings = environment(home.name) | kept
        process = launch(command, env=settings, cwd=home.name, start_new_session=True)
        self.homes[process.pid] = home
        return process

    def stop(self, process):
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except (AttributeError, ProcessLookupError):  # Windows; or it is gone
            process.kill()
        process.wait()
        self.homes.pop(process.pid).cleanup()


def walls(kind, limits, private=()):
    """The walls of this `kind` (auto, bubblewrap, docker, podman or none).

    Raises BookError, with all that was tried, where they cannot be had.
    """
    if kind == "none":
        return NoWalls(limits)
    problems = []
    if kind in ("auto", "bubblewrap"):
        problem = Bubblewrap.problem()
        if problem is None:
            return Bubblewrap(limits, private)
        problems.append(problem)
    for program in ("docker", "podman"):
        if kind in ("auto", program):
            problem = Container.problem(program)
            if problem is None:
                return Container(limits, private, program)
            problems.append(problem)
    raise BookError(
        f"no isolation for students' code: {'; '.join(problems)}. See assignments/README.md, or"
        " say --no-isolation to let their code read and change what you can"
    )


def launch(command, **options):
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, **options)


class Student:
    """A running process of one submission, as seen from this side of the wall."""

    def __init__(self, walls):
        self.walls, self.printed, self.flooded = walls, 0, False
        self.number = 0  # of the last request, which its reply must bear
        self.first_words = ""  # of what it prints, to explain why it does not start
        self.replies = queue.Queue()
        self.process = walls.start()
        tasks = (self.read_replies, self.read_printed)
        self.readers = [threading.Thread(target=task, daemon=True) for task in tasks]
        for reader in self.readers:
            reader.start()
        try:
            self.receive(STARTUP)
        except Lost as lost:
            self.close()
            raise BookError(
                f"Python does not start behind the wall ({lost.reason}): {self.first_words}"
            ) from None

    def read_replies(self):
        while line := self.process.stdout.readline(REPLY):
            self.replies.put(line)
            if self.replies.qsize() > 3 or len(line) == REPLY:  # more than was asked for
                self.process.kill()
                break
        self.replies.put(b"")

    def read_printed(self):
        while block := self.process.stderr.read1(65536):
            if not self.printed:
                self.first_words = block[-300:].decode(errors="replace").strip()
            self.printed += len(block)
            if self.printed > self.walls.limits.output_kb * 1000:
                self.flooded = True
                self.process.kill()
                break

    def receive(self, seconds):
        try:
            line = self.replies.get(timeout=max(seconds, 0))
        except queue.Empty:
            raise Lost("late") from None
        if not line:
            raise Lost("flood" if self.flooded else "ended")
        if len(line) == REPLY:
            raise Lost("huge")
        try:
            reply = json.loads(line)
        except (ValueError, RecursionError):
            raise Lost("noise") from None
        if not isinstance(reply, dict) or reply.pop("number", None) != self.number:
            raise Lost("noise")
        return reply

    def request(self, message, seconds):
        """Send one request; the reply. Raises Lost."""
        self.number += 1
        message = message | {"number": self.number}
        try:
            self.process.stdin.write(json.dumps(message).encode() + b"\n")
            self.process.stdin.flush()
        except OSError:
            raise Lost("flood" if self.flooded else "ended") from None
        return self.receive(seconds)

    def close(self):
        self.walls.stop(self.process)
        self.process.wait()
        for reader in self.readers:  # they end where the pipes end
            reader.join(timeout=10)
        if not any(reader.is_alive() for reader in self.readers):
            self.process.stdout.close()
            self.process.stderr.close()
        try:
            self.process.stdin.close()
        except OSError:  # what it never read
            pass
