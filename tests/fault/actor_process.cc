#include "tests/fault/actor_process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>

#include "absl/time/clock.h"

extern char** environ;

namespace tandem::testing {

ActorProcess::ActorProcess(const std::string& program, const std::vector<std::string>& args,
                           const std::string& log) {
  // Sockets: a write to a process that is gone then is an error, not a signal.
  std::array<int, 2> in{}, out{};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, in.data()) != 0) std::abort();
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, out.data()) != 0) std::abort();
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_adddup2(&files, in[1], 0);
  posix_spawn_file_actions_adddup2(&files, out[1], 1);
  posix_spawn_file_actions_addopen(&files, 2, log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
  std::vector<std::string> words = {program};
  words.insert(words.end(), args.begin(), args.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  if (posix_spawn(&pid_, argv[0], &files, nullptr, argv.data(), environ) != 0) pid_ = -1;
  posix_spawn_file_actions_destroy(&files);
  close(in[1]);
  close(out[1]);
  in_ = in[0];
  out_ = out[0];
}

ActorProcess::~ActorProcess() {
  Kill();
  close(in_);
  close(out_);
}

void ActorProcess::Send(const std::string& command) {
  const std::string line = command + "\n";
  send(in_, line.data(), line.size(), MSG_NOSIGNAL);
}

std::optional<nlohmann::json> ActorProcess::Take(const std::string& event) {
  for (auto it = events_.begin(); it != events_.end(); ++it) {
    if (it->value("event", "") != event) continue;
    nlohmann::json found = std::move(*it);
    events_.erase(it);
    return found;
  }
  return std::nullopt;
}

std::optional<nlohmann::json> ActorProcess::Await(const std::string& event,
                                                  absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  while (true) {
    if (auto found = Take(event); found.has_value()) return found;
    const auto left = absl::ToInt64Milliseconds(deadline - absl::Now());
    pollfd readable = {out_, POLLIN, 0};
    if (left <= 0 || poll(&readable, 1, static_cast<int>(left)) <= 0) return std::nullopt;
    std::array<char, 4096> buffer{};
    const ssize_t size = read(out_, buffer.data(), buffer.size());
    if (size <= 0) return std::nullopt;
    unread_.append(buffer.data(), static_cast<size_t>(size));
    for (size_t end; (end = unread_.find('\n')) != std::string::npos;) {
      nlohmann::json parsed = nlohmann::json::parse(unread_.substr(0, end), nullptr, false);
      if (parsed.is_object()) events_.push_back(std::move(parsed));
      unread_.erase(0, end + 1);
    }
  }
}

void ActorProcess::Signal(int signal) {
  if (pid_ <= 0) return;
  kill(pid_, signal);
  if (signal == SIGSTOP) waitpid(pid_, nullptr, WUNTRACED);  // until all its threads stand still
}

void ActorProcess::Kill() {
  if (pid_ <= 0) return;
  int status = 0;
  if (waitpid(pid_, &status, WNOHANG) == pid_) {
    ADD_FAILURE() << "an actor has ended by itself, signal "
                  << (WIFSIGNALED(status) ? WTERMSIG(status) : 0);
  } else {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  pid_ = -1;
}

}  // namespace tandem::testing
