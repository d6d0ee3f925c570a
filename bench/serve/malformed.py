#!/usr/bin/env python3
"""Requests that make no sense, at a running server: random bytes, cut and twisted JSON, wrong types, huge numbers, deep
nesting, invalid UTF-8, bodies that stop half-way or never go on.

    malformed.py --url http://127.0.0.1:3000 --requests 100000 --pid PID

Fails if an answer has a status that a bad request must not have, if the server stops answering good ones, or if its memory
(of --pid) grows by more than 64 MiB. Only the standard library is needed."""
import argparse, collections, json, random, socket, sys, urllib.parse

ROUTES = ["/predict", "/embed", "/embed_all", "/rerank", "/similarity", "/tokenize", "/decode", "/v1/embeddings", "/generate",
          "/explain", "/v2/models/builtin/infer", "/", "/invocations", "/nowhere"]
# 200: some of what is twisted is still a request. 0: the connection was closed on bytes that are no HTTP.
ALLOWED = {0, 200, 400, 404, 405, 408, 413, 414, 415, 422, 424, 429, 431}
GOOD = [{"inputs": "a"}, {"inputs": [["a", "b"]]}, {"query": "a", "texts": ["b"]}, {"ids": [101, 102]}, {"input": "a"},
        {"inputs": {"source_sentence": "a", "sentences": ["b"]}}, {"inputs": "a", "sparing": {"precision": "int8"}},
        {"inputs": [{"name": "text", "shape": [1], "datatype": "BYTES", "data": ["a"]}]}, {"text": "a"}]
ODD = [None, True, -1, 1e308, 10**40, 2**64, -0.0, "", "\u0000", "a" * 3000, [], {}, [[]], [None], {"a": {}}, [[[[]]]], "\ud800"]


def twisted(draw, value):
    if draw.random() < .3:
        return draw.choice(ODD)
    if isinstance(value, dict):
        return {draw.choice([k, k, k, k.upper(), ""]): twisted(draw, v) for k, v in value.items()}
    if isinstance(value, list):
        return [twisted(draw, v) for v in value] * draw.choice([1, 1, 1, 2, 40])
    return value


def body(draw):
    kind = draw.randrange(8)
    text = json.dumps(draw.choice(GOOD)).encode()
    if kind == 0:
        return draw.randbytes(draw.randrange(300))
    if kind == 1:
        return text[:draw.randrange(len(text))]
    if kind == 2:
        place = draw.randrange(len(text))
        return text[:place] + draw.randbytes(1 + draw.randrange(3)) + text[place + 1:]
    if kind == 3:
        return b'{"inputs": ' + draw.choice([b"[", b'{"a":', b"[["]) * draw.randrange(1, 3000)
    if kind == 4:
        return b'{"inputs": ' + b"9" * draw.randrange(1, 500) + b"}"
    if kind == 5:
        return b'{"inputs": "' + draw.choice([b"\xff\xfe", b"\xed\xa0\x80", b"\xc0\x80"]) + b'"}'
    return json.dumps(twisted(draw, draw.choice(GOOD))).encode("utf8", "surrogatepass")


def request(draw):
    content = body(draw)
    if draw.random() < .05:
        return draw.randbytes(draw.randrange(1, 400)) + b"\r\n\r\n", True
    kind = draw.choice([b"application/json"] * 9 + [b"text/plain"])
    length = len(content)
    if draw.random() < .03:
        length = draw.choice([10**12, 10**30, length // 2])
    head = b"POST %s HTTP/1.1\r\nhost: a\r\ncontent-type: %s\r\ncontent-length: %d\r\n" % (draw.choice(ROUTES).encode(), kind, length)
    if draw.random() < .02:
        head += b"x: " + draw.choice([b"y" * 100_000, draw.randbytes(20).replace(b"\n", b"")]) + b"\r\n"
    return head + b"\r\n" + content, length != len(content)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="http://127.0.0.1:3000")
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--pid", type=int)
    args = parser.parse_args()
    url = urllib.parse.urlparse(args.url)
    address, draw = (url.hostname, url.port), random.Random(args.seed)

    def memory():
        if not args.pid:
            return 0
        with open(f"/proc/{args.pid}/status") as status:
            return next(int(line.split()[1]) for line in status if line.startswith("VmRSS")) // 1024

    def answer(stream):
        data = b""
        while b"\r\n\r\n" not in data:
            more = stream.recv(65536)
            if not more:
                return 0, True
            data += more
        head, _, rest = data.partition(b"\r\n\r\n")
        lower = head.lower()
        length = int(lower.split(b"content-length: ")[1].split(b"\r\n")[0]) if b"content-length: " in lower else 0
        while len(rest) < length:
            more = stream.recv(65536)
            if not more:
                return int(head.split(b" ")[1]), True
            rest += more
        return int(head.split(b" ")[1]), b"connection: close" in lower

    def stalled():
        """A request whose body never goes on."""
        stream = socket.create_connection(address, timeout=60)
        stream.sendall(b"POST /predict HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: 50\r\n\r\n{\"inp")
        return stream

    def given_up(streams):
        """What the server says to those in the end: that it has waited for too long."""
        for stream in streams:
            with stream:
                status, _ = answer(stream)
            counts[status] += 1
            if status != 408:
                sys.exit(f"a body that never goes on was answered {status}")

    counts, stream, begin, waiting = collections.Counter(), None, None, []
    for number in range(args.requests):
        data, last = request(draw)
        try:
            stream = stream or socket.create_connection(address, timeout=60)
            stream.sendall(data)
            if last:
                stream.shutdown(socket.SHUT_WR)
            status, closed = answer(stream)
        except OSError:
            status, closed = 0, True
        if last or closed:
            stream.close()
            stream = None
        counts[status] += 1
        if status not in ALLOWED:
            sys.exit(f"request {number} of seed {args.seed} was answered {status}: {data[:300]!r}")
        if number % 250 == 0:
            waiting.append(stalled())
        if len(waiting) == 100:
            given_up(waiting)
            waiting = []
        if number == min(2000, args.requests // 2):
            begin = memory()
    given_up(waiting)
    good = b'{"inputs": "a joy from start to end"}'
    with socket.create_connection(address, timeout=60) as stream:
        stream.sendall(b"POST /predict HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (len(good), good))
        status, _ = answer(stream)
    grown = memory() - begin
    print(json.dumps({"requests": args.requests, "statuses": dict(sorted(counts.items())), "after": status, "memory_mib": memory(), "grown_mib": grown}))
    if status != 200 or grown > 64:
        sys.exit("the server is not what it was")


if __name__ == "__main__":
    main()
