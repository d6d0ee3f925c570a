"""The engines of the benchmark, and the processes they run in."""

import os
import pathlib
import select
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
CACHE = HERE / ".cache"

# name: (shown as, precision, what must have been exported)
ENGINES = {
    "torch": ("PyTorch eager", "f32", []),
    "torch-compile": ("PyTorch compiled", "f32", []),
    "onnxruntime": ("ONNX Runtime", "f32", ["onnx"]),
    "openvino": ("OpenVINO", "f32", ["onnx"]),
    "candle": ("candle", "f32", []),
    "sparing": ("Sparing", "f32", []),
    "torch-bf16": ("PyTorch eager", "bf16", []),
    "torch-compile-bf16": ("PyTorch compiled", "bf16", []),
    "openvino-bf16": ("OpenVINO", "bf16", ["onnx"]),
    "sparing-bf16": ("Sparing", "bf16", []),
    "onnxruntime-int8": ("ONNX Runtime dynamic", "int8", ["onnx", "ort-int8"]),
    "openvino-int8": ("OpenVINO static", "int8", ["onnx", "openvino-int8"]),
    "sparing-int8": ("Sparing", "int8", []),
}
# Compiled anew for each shape, a few percent faster for it, and no choice where lengths vary: asked for by name.
FIXED = {
    "openvino-fixed": ("OpenVINO, fixed shape", "f32", ["onnx"]),
    "openvino-fixed-bf16": ("OpenVINO, fixed shape", "bf16", ["onnx"]),
    "openvino-fixed-int8": ("OpenVINO static, fixed shape", "int8", ["onnx", "openvino-int8"]),
}
# What `sparing optimize` made of a model of this shape (`--optimized`), beside rivals that run all of it.
OPTIMIZED = "sparing-optimized"
DEFAULT = list(ENGINES)
ENGINES.update(FIXED)
ENGINES[OPTIMIZED] = ("Sparing, optimised", "int8", [])
EXPORTED = {"onnx": "model.onnx", "ort-int8": "model_int8.onnx", "openvino-int8": "model_int8.xml"}


def is_ours(name):
    return name.startswith("sparing")


def target_dir(package):
    return pathlib.Path(os.environ.get("CARGO_TARGET_DIR", package / "target"))


def build(names, sparing, optimized=None):
    """Builds what is written in Rust; returns the path of each program."""
    programs = {"sparing": sparing, OPTIMIZED: optimized}
    if "candle" in names:
        subprocess.run(["cargo", "build", "--release", "--locked", "--quiet"], cwd=HERE / "candle", check=True)
        programs["candle"] = target_dir(HERE / "candle") / "release/candle-worker"
    if sparing is None and any(map(is_ours, names)):
        subprocess.run(["cargo", "build", "--release", "--locked", "--quiet", "-p", "sparing"], cwd=ROOT, check=True)
        programs["sparing"] = target_dir(ROOT) / "release/sparing"
    return programs


def export(names, model, exports, calibration=None):
    """Makes the forms of the model that these engines read, each in a process of its own."""
    for what in dict.fromkeys(w for n in names for w in ENGINES[n][2]):
        if (exports / EXPORTED[what]).exists():
            continue
        print(f"exporting {exports.name}: {what}", file=sys.stderr, flush=True)
        command = [sys.executable, HERE / "models.py", what, model, exports]
        if calibration:
            command += ["--calibration", calibration]
        log = exports / f"{what}.log"
        with open(log, "w") as f:
            if subprocess.run(command, stdout=f, stderr=f).returncode:
                raise SystemExit(f"exporting {what} failed:\n" + tail(log))


def tail(path, lines=8):
    return "\n".join(pathlib.Path(path).read_text(errors="replace").splitlines()[-lines:])


class Worker:
    """One engine with one model in one process. `failure` says what went wrong, if anything did."""

    def __init__(self, name, model, exports, threads, programs):
        self.name, self.failure, self.memory = name, None, (0, 0)
        precision = ENGINES[name][1]
        t = str(threads)
        if is_ours(name):
            directory = programs[OPTIMIZED] if name == OPTIMIZED else model
            command = [programs["sparing"], "bench", directory, "--worker", "--precision", precision, "--threads", t]
        elif name == "candle":
            command = [programs["candle"], model]
        else:
            command = [sys.executable, HERE / "worker.py", name, model, exports, t]
        # OpenMP threads spin for a few milliseconds after each region, then sleep: full speed, idle when idle.
        env = dict(os.environ, OMP_NUM_THREADS=t, MKL_NUM_THREADS=t, RAYON_NUM_THREADS=t, KMP_BLOCKTIME="5")
        env.update(TOKENIZERS_PARALLELISM="false", TORCHINDUCTOR_COMPILE_THREADS="1", HF_HUB_OFFLINE="1")
        (CACHE / "logs").mkdir(parents=True, exist_ok=True)
        self.log = CACHE / "logs" / f"{name}.log"
        start = time.perf_counter()
        with open(self.log, "w") as log:
            self.process = subprocess.Popen([str(c) for c in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, env=env)
        self.rest = b""
        line = self._line(lambda l: l.startswith("READY"), 300)
        self.started = time.perf_counter() - start  # from nothing to ready
        self.load = float(line.split()[1]) if line else None  # the model alone, libraries already imported

    def _line(self, wanted, timeout):
        """The next line of output that is `wanted`."""
        deadline = time.monotonic() + timeout
        fd = self.process.stdout.fileno()
        while True:
            while b"\n" in self.rest:
                line, self.rest = self.rest.split(b"\n", 1)
                if wanted(text := line.decode(errors="replace")):
                    return text
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([fd], [], [], left)[0]:
                return self._fail(f"no answer in {timeout} s")
            more = os.read(fd, 1 << 20)
            if not more:
                return self._fail("the process ended: " + tail(self.log, 3))
            self.rest += more

    def _fail(self, why):
        self.failure = why
        self.close()

    def _ask(self, line, timeout):
        if self.failure:
            return None
        try:
            self.process.stdin.write(line.encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            return self._fail("the process ended: " + tail(self.log, 3))
        answer = self._line(lambda l: "|" in l, timeout)
        if answer is None:
            return None
        numbers, memory = answer.split("|")
        self.memory = tuple(int(x) for x in memory.split())
        return numbers.split()

    def time(self, batch, length, times, timeout=600):
        """[(wall ms, cpu ms)] of so many runs, or None."""
        found = self._ask(f"{batch} {length} {times}", timeout)
        return [tuple(map(float, x.split(":"))) for x in found] if found else None

    def outputs(self, ids, timeout=300):
        """What the model says to one sequence, as a flat list, or None."""
        found = self._ask("ids " + " ".join(map(str, ids)), timeout)
        return [float(x) for x in found] if found is not None else None

    def cpu_seconds(self):
        """CPU time used so far, all threads."""
        try:
            fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        except FileNotFoundError:
            return 0.0
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def close(self):
        try:
            self.process.stdin.close()
            self.process.wait(10)
        except (OSError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()


def idle_burners(workers, seconds=1.0):
    """Names of workers that use the CPU though nobody asked them anything: they would slow the others."""
    time.sleep(0.3)
    before = [w.cpu_seconds() for w in workers]
    time.sleep(seconds)
    return [(w.name, (w.cpu_seconds() - b) / seconds) for w, b in zip(workers, before) if w.cpu_seconds() - b > 0.03 * seconds]
