"""A terminal of 80 columns and 24 lines with a program in it: what it shows, and keys for it."""

import fcntl
import os
import pty
import select
import struct
import termios
import threading
import time

import pyte

COLUMNS, LINES = 80, 24


class Screen(pyte.Screen):
    """Programs ask a terminal where its cursor is, and wait for the answer."""

    def __init__(self, answer):
        super().__init__(COLUMNS, LINES)
        self.write_process_input = answer

    def report_device_attributes(self, mode=0, **kwargs):
        # The private forms ask for something else; the emulator would take them for these.
        if not kwargs.get("private"):
            super().report_device_attributes(mode)

    def report_device_status(self, mode=0, **kwargs):
        if not kwargs.get("private"):
            super().report_device_status(mode)

    def select_graphic_rendition(self, *attrs, **_):
        # `ESC [ > 4 m` sets how keys are sent, not how text looks.
        super().select_graphic_rendition(*attrs)


class Terminal:
    def __init__(self, words, cwd, env):
        self.lock, self.raw, self.ended = threading.RLock(), b"", False
        self.pid, self.line = pty.fork()
        if self.pid == 0:
            try:
                fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
                os.chdir(cwd)
                os.execve(words[0], [str(word) for word in words], dict(env, TERM="xterm-256color"))
            finally:
                os._exit(127)
        self.screen = Screen(self.keys)
        self.stream = pyte.ByteStream(self.screen)
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        while not self.ended:
            ready, _, _ = select.select([self.line], [], [], 0.2)
            if not ready:
                continue
            try:
                data = os.read(self.line, 65536)
            except OSError:
                break
            if not data:
                break
            with self.lock:
                self.raw = (self.raw + data)[-200_000:]
                self.stream.feed(data)

    def keys(self, text):
        os.write(self.line, text.encode() if isinstance(text, str) else text)

    def lines(self):
        with self.lock:
            return [line.rstrip() for line in self.screen.display]

    def shown(self):
        return "\n".join(line for line in self.lines() if line)

    def wait_for(self, test, seconds):
        """The screen as soon as it passes the test, or None."""
        until = time.time() + seconds
        while time.time() < until:
            lines = self.lines()
            if test("\n".join(lines)):
                return lines
            time.sleep(0.1)
        return None

    def end(self):
        self.ended = True
        for signal in (15, 9):
            try:
                os.kill(self.pid, signal)
            except ProcessLookupError:
                break
            for _ in range(30):
                try:
                    if os.waitpid(self.pid, os.WNOHANG)[0]:
                        self.close()
                        return
                except ChildProcessError:
                    self.close()
                    return
                time.sleep(0.1)
        self.close()

    def close(self):
        self.reader.join(2)
        try:
            os.close(self.line)
        except OSError:
            pass
