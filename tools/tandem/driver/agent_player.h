// AgentPlayer: runs the agent programs of a run's episodes, a bounded number at a time: opens a session
// on a rollout, runs the program, and fetches what it recorded.
//
//   auto cancel = player.Start(request, [](AgentPlayer::Played played) { Use(played); });
//   player.Stop();
#ifndef TANDEM_TOOLS_TANDEM_DRIVER_AGENT_PLAYER_H_
#define TANDEM_TOOLS_TANDEM_DRIVER_AGENT_PLAYER_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "nlohmann/json.hpp"
#include "tools/tandem/driver/rollout_fleet.h"
#include "tools/tandem/driver/task_pool.h"
#include "tools/tandem/environment/agent_program.h"

namespace tandem::driver {

// Thread-safe. A program that waits for its rollout or its tools costs a thread, but none of those
// that advance the other episodes.
class AgentPlayer {
 public:
  struct Options {
    std::shared_ptr<const environment::AgentProgram> program;
    int64_t max_concurrent = 64;
    absl::Duration timeout = absl::Seconds(60);  // of one program
  };

  struct Request {
    RolloutFleet* fleet = nullptr;
    int64_t cost = 0;                         // tokens that the episode is expected to sample
    rollout::v1::OpenSessionRequest session;  // without id, incarnation and duration
    environment::AgentTask task;              // without URL and id
  };

  struct Played {
    environment::AgentRun run;
    std::vector<rollout::v1::RecordedCall> calls;
    std::vector<std::string> images;  // the files that the calls name by their digests
    int64_t incarnation = 0;          // of the trainer whose weights they should be of; 0: any
    std::string replica;
    double seconds = 0;  // that the program ran
    // The session could not be opened for a reason that another try would meet again.
    bool is_refused = false;
  };

  explicit AgentPlayer(Options options);
  ~AgentPlayer() { Stop(); }

  // Plays an episode when there is room, and calls `done` once, from another thread. Returns a function
  // that cuts the episode off, which then ends soon with CANCELLED.
  std::function<void()> Start(Request request, std::function<void(Played)> done);

  // Cuts off what runs and waits for its end; episodes that have not begun are discarded without a call
  // of `done`. The fleet is not used afterwards.
  void Stop();

 private:
  Played Play(Request request, const std::function<bool()>& cancelled) const;

  const Options options_;
  std::atomic<bool> is_stopping_{false};
  TaskPool pool_;
};

}  // namespace tandem::driver

#endif  // TANDEM_TOOLS_TANDEM_DRIVER_AGENT_PLAYER_H_
