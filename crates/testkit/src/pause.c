/* Holds the namespaces of a pod: waits until it gets a signal. */
#include <signal.h>
#include <unistd.h>

static void end(int signal) { _exit(0); }

int main(void) {
  signal(SIGTERM, end);
  signal(SIGINT, end);
  for (;;) pause();
}
