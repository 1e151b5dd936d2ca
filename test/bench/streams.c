// The bench's generator of event streams, native so that it is never what is measured. One thread, epoll. It holds so
// many connections, sends one request after another on each, reads the events and prints one line of JSON.
// `streams PORT CONNECTIONS STREAMS SPREAD_MS PAUSE_MS EVENTS SESSIONS BODY_FILE`: STREAMS for each connection,
// connections begin within SPREAD_MS, each pauses PAUSE_MS between two of its streams, every stream has EVENTS events.

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define BATCH 256
#define STATUS "HTTP/1.1 200"
#define STATUS_BYTES 12
/* How a chunked body ends, behind the line feed of the chunk before. */
#define END "\r\n0\r\n\r\n"
#define END_BYTES 7

struct line {
  int fd;
  int session;
  int streams_left;
  bool busy;
  int64_t begins; /* the next stream, where it is not busy */
  int64_t sent;
  int events;
  int matched; /* bytes of END that came last */
  bool after_feed;
  int seen; /* bytes of the status that have come */
};

static int port, streams, events_wanted, sessions, lines_busy_or_due;
static int64_t pause_ns;
static int poller;
static char *body;
static size_t body_bytes;
static double *latencies;
static int latency_count;
static long events_seen;

static void fail(const char *what) {
  fprintf(stderr, "streams: %s\n", what);
  exit(1);
}

static int64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void read_body(const char *path) {
  FILE *file = fopen(path, "rb");
  if (!file) fail("cannot open the body's file");
  body = malloc(1 << 20);
  body_bytes = fread(body, 1, 1 << 20, file);
  fclose(file);
}

static void connect_line(struct line *l) {
  struct sockaddr_in address = {
      .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(port)};
  l->fd = socket(AF_INET, SOCK_STREAM, 0);
  if (l->fd < 0 || connect(l->fd, (struct sockaddr *)&address, sizeof address)) fail("cannot connect");
  int on = 1;
  setsockopt(l->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  struct epoll_event interest = {.events = EPOLLIN, .data.ptr = l};
  if (epoll_ctl(poller, EPOLL_CTL_ADD, l->fd, &interest)) fail("epoll_ctl");
}

/* The clock starts before connecting: that a proxy is slow to accept counts. */
static void begin(struct line *l) {
  char head[512];
  l->busy = true;
  l->events = l->matched = l->seen = 0;
  l->after_feed = false;
  l->sent = now_ns();
  if (l->fd < 0) connect_line(l);
  int length = snprintf(head, sizeof head,
                        "POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1:%d\r\ncontent-type: application/json\r\n"
                        "x-session-id: %d\r\nx-bench-events: %d\r\ncontent-length: %zu\r\n\r\n",
                        port, l->session, events_wanted, body_bytes);
  if (send(l->fd, head, length, MSG_NOSIGNAL | MSG_MORE) != length) fail("cannot send a head");
  if (send(l->fd, body, body_bytes, MSG_NOSIGNAL) != (ssize_t)body_bytes) fail("cannot send a body");
}

/* Begins every stream that is due; returns when the next one is, INT64_MAX for none. */
static int64_t begin_due(struct line *lines, int count, int64_t now) {
  int64_t next = INT64_MAX;
  for (struct line *l = lines; l < lines + count; l++) {
    if (l->busy || l->streams_left == 0) continue;
    if (l->begins <= now) begin(l);
    else if (l->begins < next) next = l->begins;
  }
  return next;
}

static int milliseconds_until(int64_t next) {
  if (next == INT64_MAX) return -1;
  int64_t wait = next - now_ns();
  return wait > 0 ? (int)((wait + 999999) / 1000000) : 0;
}

static void on_event(struct line *l) {
  events_seen++;
  if (l->events++ == 0) latencies[latency_count++] = (now_ns() - l->sent) / 1e6;
}

/* Takes one byte; true where it was the last of the stream. */
static bool on_byte(struct line *l, char byte) {
  if (l->seen < STATUS_BYTES && byte != STATUS[l->seen++]) fail("an answer has not the status 200");
  if (byte == '\n' && l->after_feed) on_event(l);
  l->after_feed = byte == '\n';
  l->matched = byte == END[l->matched] ? l->matched + 1 : byte == END[0];
  return l->matched == END_BYTES;
}

static void end(struct line *l) {
  if (l->events != events_wanted) fail("a stream has not all of its events");
  l->busy = false;
  l->begins = now_ns() + pause_ns;
  if (--l->streams_left == 0) lines_busy_or_due--;
}

static void receive(struct line *l) {
  static char scratch[65536];
  ssize_t got = recv(l->fd, scratch, sizeof scratch, MSG_DONTWAIT);
  if (got < 0 && errno == EAGAIN) return;
  if (got <= 0 && l->busy) fail("a stream broke off");
  if (got <= 0) {
    close(l->fd);
    l->fd = -1;
    return;
  }
  for (ssize_t i = 0; i < got; i++) {
    if (!l->busy) fail("bytes came behind the end of a stream");
    if (on_byte(l, scratch[i])) end(l);
  }
}

static void print_outcome(double seconds) {
  struct rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  long cpu = (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000L + usage.ru_utime.tv_usec + usage.ru_stime.tv_usec;
  printf("{\"seconds\":%f,\"events\":%ld,\"cpu\":%ld,\"latencies\":[", seconds, events_seen, cpu);
  for (int i = 0; i < latency_count; i++) printf("%s%.3f", i ? "," : "", latencies[i]);
  printf("]}\n");
}

int main(int count, char **arguments) {
  if (count != 9) fail("eight arguments are wanted");
  port = atoi(arguments[1]);
  int connections = atoi(arguments[2]);
  streams = atoi(arguments[3]);
  int64_t spread_ns = atoll(arguments[4]) * 1000000LL;
  pause_ns = atoll(arguments[5]) * 1000000LL;
  events_wanted = atoi(arguments[6]);
  sessions = atoi(arguments[7]);
  read_body(arguments[8]);
  struct rlimit files;
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
  poller = epoll_create1(0);
  latencies = calloc((size_t)connections * streams, sizeof *latencies);
  struct line *lines = calloc(connections, sizeof *lines);
  int64_t start = now_ns();
  srandom(1);
  for (int i = 0; i < connections; i++) {
    /* Not evenly: the pace of the events would put streams in step. */
    double place = (i + random() / (double)RAND_MAX) / connections;
    lines[i] = (struct line){.fd = -1, .session = i % sessions, .streams_left = streams, .begins = start + (int64_t)(place * spread_ns)};
  }
  lines_busy_or_due = connections;
  struct epoll_event events[BATCH];
  while (lines_busy_or_due > 0) {
    int64_t next = begin_due(lines, connections, now_ns());
    int ready = epoll_wait(poller, events, BATCH, milliseconds_until(next));
    for (int i = 0; i < ready; i++) receive(events[i].data.ptr);
  }
  print_outcome((now_ns() - start) / 1e9);
}
