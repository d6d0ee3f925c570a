#!/usr/bin/env python3
"""Load on a running server: clients that send one text after the other, or texts at a fixed rate.

    load.py --url http://127.0.0.1:3000 --clients 32 --seconds 20            closed loop: as fast as answers come
    load.py --url http://127.0.0.1:3000 --rate 400 --seconds 60              open loop: whatever the server does

Texts are the same on every run: 8 to 256 tokens of common words, evenly spread. Only the standard library is needed.
Prints one JSON object: requests and tokens per second, latencies, statuses.
"""
import argparse, asyncio, json, random, time, urllib.parse

WORDS = ("the film is a story of time and people who find that life may be more than work and home but not all of them "
         "know how to say it well so they go on and on until the end comes with a joy that no one saw before").split()


def texts(count, seed=0):
    """Texts of 8 to 256 tokens: common words are one token each, two more are special."""
    draw = random.Random(seed)
    return [" ".join(draw.choice(WORDS) for _ in range(draw.randint(6, 254))) for _ in range(count)]


class Connection:
    """HTTP/1.1 on one connection that stays open."""

    def __init__(self, host, port, path):
        self.host, self.port, self.path, self.reader, self.writer = host, port, path, None, None

    async def post(self, body):
        """The status. A connection that the server closed while it was idle is opened again once, as clients do."""
        reused = self.writer is not None
        status = await self.once(body)
        return await self.once(body) if status == 0 and reused else status

    async def once(self, body):
        if self.writer is None:
            self.reader, self.writer = await asyncio.open_connection(self.host, self.port)
        head = f"POST {self.path} HTTP/1.1\r\nhost: {self.host}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        self.writer.write(head.encode() + body)
        try:
            answer = await self.reader.readuntil(b"\r\n\r\n")
            lines = answer.decode("latin1").split("\r\n")
            headers = dict(line.lower().split(": ", 1) for line in lines[1:] if ": " in line)
            await self.reader.readexactly(int(headers.get("content-length", 0)))
            if headers.get("connection") == "close":
                self.close()
            return int(lines[0].split(" ")[1])
        except (asyncio.IncompleteReadError, ConnectionError):
            self.close()
            return 0

    def close(self):
        if self.writer:
            self.writer.close()
        self.reader = self.writer = None


async def closed(args, bodies, note):
    end = time.perf_counter() + args.seconds

    async def client(number):
        connection, place = Connection(args.host, args.port, args.path), number
        while time.perf_counter() < end:
            began = time.perf_counter()
            status = await connection.post(bodies[place % len(bodies)])
            note(status, time.perf_counter() - began, place % len(bodies))
            place += args.clients
            if status == 429:
                await asyncio.sleep(args.backoff)
        connection.close()

    await asyncio.gather(*(client(number) for number in range(args.clients)))


async def opened(args, bodies, note):
    free, began, tasks = [], time.perf_counter(), set()

    async def one(place, due):
        connection = free.pop() if free else Connection(args.host, args.port, args.path)
        status = await connection.post(bodies[place])
        note(status, time.perf_counter() - due, place)
        free.append(connection)

    for number in range(int(args.rate * args.seconds)):
        due = began + number / args.rate
        if (wait := due - time.perf_counter()) > 0:
            await asyncio.sleep(wait)
        task = asyncio.ensure_future(one(number % len(bodies), due))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
    await asyncio.gather(*tasks)


def quantile(values, share):
    return sorted(values)[min(int(share * len(values)), len(values) - 1)] if values else None


def measure(args):
    """Requests and tokens per second, latencies in milliseconds, statuses."""
    url = urllib.parse.urlparse(args.url)
    args.host, args.port = url.hostname, url.port
    all_texts = texts(args.texts)
    bodies = [json.dumps({"inputs": text}).encode() for text in all_texts]
    tokens = [len(text.split(" ")) + 2 for text in all_texts]
    statuses, latencies, refused, done = {}, [], [], [0]

    def note(status, seconds, place):
        statuses[status] = statuses.get(status, 0) + 1
        (latencies if status == 200 else refused).append(seconds)
        if status == 200:
            done[0] += tokens[place]

    began = time.perf_counter()
    asyncio.run(opened(args, bodies, note) if args.rate else closed(args, bodies, note))
    took = time.perf_counter() - began
    ms = lambda values, share: round(1e3 * quantile(values, share), 2) if values else None
    return {
        "seconds": round(took, 2), "statuses": statuses,
        "requests_per_second": round(len(latencies) / took, 1), "tokens_per_second": round(done[0] / took),
        "p50_ms": ms(latencies, .5), "p90_ms": ms(latencies, .9), "p99_ms": ms(latencies, .99),
        "refused_p99_ms": ms(refused, .99),
    }


def arguments(about):
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="http://127.0.0.1:3000")
    parser.add_argument("--path", default="/predict")
    parser.add_argument("--backoff", type=float, default=.05, help="seconds that a refused client waits before it asks again")
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--texts", type=int, default=2000)
    return parser


def main():
    parser = arguments(__doc__)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--rate", type=float, help="requests per second, whatever the server does")
    print(json.dumps(measure(parser.parse_args())))


if __name__ == "__main__":
    main()
