/* Runs two programs in turn and prints the CPU time of each run; see program.py.
 *
 *   turns BLOCKS A B   BLOCKS runs of A and of B, what they print thrown away; a line "a SECONDS" or "b SECONDS" each */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static double seconds(const char *program) {
    pid_t child = fork();
    if (child == 0) {
        if (freopen("/dev/null", "w", stdout) && freopen("/dev/null", "r", stdin))
            execl(program, program, (char *)NULL);
        _exit(127);
    }
    int status;
    struct rusage used;
    if (child < 0 || wait4(child, &status, 0, &used) != child) {
        perror("turns");
        exit(3);
    }
    if (!WIFEXITED(status) || WEXITSTATUS(status)) {
        fprintf(stderr, "error: a timed run failed\n");
        exit(3);
    }
    return used.ru_utime.tv_sec + used.ru_stime.tv_sec + 1e-6 * (used.ru_utime.tv_usec + used.ru_stime.tv_usec);
}

int main(int argc, char **argv) {
    if (argc != 4) {
        fprintf(stderr, "usage: turns BLOCKS A B\n");
        return 2;
    }
    for (int b = 0; b < atoi(argv[1]); b++)
        for (int turn = 0; turn < 2; turn++) {
            int side = (b + turn) % 2;
            printf("%c %.9g\n", "ab"[side], seconds(argv[2 + side]));
        }
    return 0;
}
