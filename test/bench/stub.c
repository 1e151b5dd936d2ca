// The bench's upstream, native so that it is never what is measured: on every port it answers each POST, once its whole
// body is there, with the same 500 bytes, or with a stream of events at a steady pace where a header asks for one, and
// each GET with a list of models, whatever the path. One thread, epoll. `stub PORTS` prints that many ports, a line each.

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#define HEAD_BYTES 8192
#define ANSWER_BYTES 500
#define BATCH 256
/* As EVENT_MS and EVENTS_HEADER of wire.ts say. */
#define EVENT_NS 40000000LL
#define EVENTS_HEADER "x-bench-events"

#define EVENT "data: {\"id\":\"x\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"token\"}}]}\n\n"
#define STREAM_HEAD "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
#define STREAM_END "0\r\n\r\n"
#define MODELS "{\"object\":\"list\",\"data\":[{\"id\":\"m\",\"object\":\"model\"}]}"

struct connection {
  int fd; /* -1 once closed, while it still stands in the queue */
  bool listens;
  bool queued;
  bool is_get;
  int events; /* asked for by the request that is being read */
  int left;   /* to be sent of the stream under way */
  int64_t due;
  struct connection *next;
  uint64_t body_left;
  size_t filled;
  char head[HEAD_BYTES];
};

static int poller;
/* Streams in the order in which their next event is due: all have the same pace. */
static struct connection *first, **last = &first;
static char scratch[1 << 18];
static char answer[1024], models[512], event[256];

static int64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void fail(const char *what) {
  perror(what);
  exit(1);
}

static void put_answer(char *into, const char *body) {
  sprintf(into, "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %zu\r\n\r\n%s", strlen(body), body);
}

static void make_answers(void) {
  char body[ANSWER_BYTES + 1];
  int start = sprintf(body, "{\"id\":\"x\",\"object\":\"chat.completion\",\"filler\":\"");
  memset(body + start, 'y', ANSWER_BYTES - 2 - start);
  strcpy(body + ANSWER_BYTES - 2, "\"}");
  put_answer(answer, body);
  put_answer(models, MODELS);
  sprintf(event, "%zx\r\n%s\r\n", strlen(EVENT), EVENT);
}

/* False where a client does not read what little is sent: its connection is not worth keeping. */
static bool send_all(int fd, const char *bytes) {
  size_t length = strlen(bytes);
  return send(fd, bytes, length, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)length;
}

static void drop(struct connection *c) {
  close(c->fd);
  c->fd = -1;
  if (!c->queued) free(c);
}

static void enqueue(struct connection *c, int64_t due) {
  c->due = due;
  c->next = NULL;
  c->queued = true;
  *last = c;
  last = &c->next;
}

static bool send_event(struct connection *c, const char *before) {
  char bytes[512];
  snprintf(bytes, sizeof bytes, "%s%s%s", before, event, --c->left == 0 ? STREAM_END : "");
  return send_all(c->fd, bytes);
}

static bool respond(struct connection *c) {
  if (c->is_get) return send_all(c->fd, models);
  if (c->events == 0) return send_all(c->fd, answer);
  if (c->queued) return false;
  c->left = c->events;
  if (!send_event(c, STREAM_HEAD)) return false;
  if (c->left > 0) enqueue(c, now_ns() + EVENT_NS);
  return true;
}

/* Sends all events that are due; returns the milliseconds until the next one, -1 for none. */
static int send_due(void) {
  int64_t now = now_ns();
  while (first && first->due <= now) {
    struct connection *c = first;
    first = c->next;
    if (!first) last = &first;
    c->queued = false;
    if (c->fd < 0) free(c);
    else if (!send_event(c, "")) drop(c);
    else if (c->left > 0) enqueue(c, c->due + EVENT_NS);
  }
  return first ? (int)((first->due - now + 999999) / 1000000) : -1;
}

/* The number in a header of that name, 0 where there is none; the head ends in a zero byte. */
static uint64_t number_of(const char *head, const char *name) {
  size_t length = strlen(name);
  for (const char *line = strchr(head, '\n'); line; line = strchr(line + 1, '\n')) {
    if (strncasecmp(line + 1, name, length) == 0 && line[1 + length] == ':') return strtoull(line + 2 + length, NULL, 10);
  }
  return 0;
}

/* Takes bytes of a head; returns how many were of it, 0 for a head that is too long. */
static size_t take_head(struct connection *c, const char *bytes, size_t length) {
  size_t before = c->filled;
  size_t room = HEAD_BYTES - 1 - before;
  size_t taken = length < room ? length : room;
  memcpy(c->head + before, bytes, taken);
  c->filled += taken;
  char *end = memmem(c->head, c->filled, "\r\n\r\n", 4);
  if (!end) return taken == room ? 0 : taken;
  taken = end + 4 - c->head - before;
  end[2] = '\0';
  c->filled = 0;
  c->is_get = strncmp(c->head, "GET ", 4) == 0;
  c->events = (int)number_of(c->head, EVENTS_HEADER);
  c->body_left = number_of(c->head, "content-length") + 1; /* 1 is: the body is over */
  return taken;
}

/* False where the connection cannot go on. */
static bool take(struct connection *c, const char *bytes, size_t length) {
  while (length > 0) {
    size_t taken;
    if (c->body_left == 0) {
      taken = take_head(c, bytes, length);
      if (taken == 0) return false;
    } else {
      taken = length < c->body_left - 1 ? length : c->body_left - 1;
      c->body_left -= taken;
    }
    bytes += taken;
    length -= taken;
    if (c->body_left == 1) {
      c->body_left = 0;
      if (!respond(c)) return false;
    }
  }
  return true;
}

static struct connection *watch(int fd, bool listens) {
  struct connection *c = calloc(1, sizeof *c);
  if (!c) fail("calloc");
  c->fd = fd;
  c->listens = listens;
  struct epoll_event interest = {.events = EPOLLIN, .data.ptr = c};
  if (epoll_ctl(poller, EPOLL_CTL_ADD, fd, &interest)) fail("epoll_ctl");
  return c;
}

static void accept_one(int listener) {
  int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
  if (fd < 0) return;
  int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  watch(fd, false);
}

static void receive(struct connection *c) {
  ssize_t got = recv(c->fd, scratch, sizeof scratch, 0);
  if (got < 0 && errno == EAGAIN) return;
  if (got <= 0 || !take(c, scratch, got)) drop(c);
}

static int listen_somewhere(void) {
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t length = sizeof address;
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
  if (fd < 0 || bind(fd, (struct sockaddr *)&address, length) || listen(fd, 4096)) fail("listen");
  if (getsockname(fd, (struct sockaddr *)&address, &length)) fail("getsockname");
  watch(fd, true);
  return ntohs(address.sin_port);
}

int main(int count, char **arguments) {
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  struct rlimit files;
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
  make_answers();
  poller = epoll_create1(0);
  for (int ports = count > 1 ? atoi(arguments[1]) : 1; ports > 0; ports--) printf("%d\n", listen_somewhere());
  fflush(stdout);
  struct epoll_event events[BATCH];
  for (;;) {
    int ready = epoll_wait(poller, events, BATCH, send_due());
    for (int i = 0; i < ready; i++) {
      struct connection *c = events[i].data.ptr;
      if (c->listens) accept_one(c->fd);
      else receive(c);
    }
  }
}
