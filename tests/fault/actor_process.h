// ActorProcess: a process of tests/fault/update_actor.cc, and the talk with it: commands go to its
// standard input, a line each; events come from its standard output, a JSON object a line.
#ifndef TANDEM_TESTS_FAULT_ACTOR_PROCESS_H_
#define TANDEM_TESTS_FAULT_ACTOR_PROCESS_H_

#include <sys/types.h>

#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "nlohmann/json.hpp"

namespace tandem::testing {

// One thread. The process dies with this object, and with the thread that made it.
class ActorProcess {
 public:
  // Runs `program`; what it logs is appended to the file `log`.
  ActorProcess(const std::string& program, const std::vector<std::string>& args,
               const std::string& log);
  ~ActorProcess();
  ActorProcess(const ActorProcess&) = delete;
  ActorProcess& operator=(const ActorProcess&) = delete;

  // Does nothing where the process is gone.
  void Send(const std::string& command);
  // The next event of this name; those of other names are kept. Nothing where none comes in time or
  // the process ends.
  std::optional<nlohmann::json> Await(const std::string& event, absl::Duration timeout);

  void Signal(int signal);
  // SIGKILL, and waits until it is gone. A failure of the test where it had ended by itself.
  void Kill();
  pid_t pid() const { return pid_; }

 private:
  std::optional<nlohmann::json> Take(const std::string& event);

  pid_t pid_ = -1;
  int in_ = -1;
  int out_ = -1;
  std::string unread_;
  std::deque<nlohmann::json> events_;
};

}  // namespace tandem::testing

#endif  // TANDEM_TESTS_FAULT_ACTOR_PROCESS_H_
