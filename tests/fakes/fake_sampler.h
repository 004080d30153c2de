// A sampler of the generation loop that needs no rollout: a test says what each group is, holds
// groups back, and sees every request. A prompt's row is its last token.
#ifndef TANDEM_TESTS_FAKES_FAKE_SAMPLER_H_
#define TANDEM_TESTS_FAKES_FAKE_SAMPLER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "tools/tandem/driver/group_run.h"

namespace tandem::testing {

class FakeSampler {
 public:
  struct Request {
    driver::Turn turn;
    int64_t place = 0;
    driver::RolloutFleet::GenerateOptions options;

    int64_t row() const { return turn.token_ids.back(); }
  };

  static driver::Completion Of(const std::string& text, size_t num_tokens = 1) {
    driver::Completion out;
    out.text = text;
    out.token_ids.assign(num_tokens, 7);
    out.finish_reason = common::v1::FINISH_REASON_STOP;
    return out;
  }

  static driver::Group Pair(const std::string& first, const std::string& second) {
    driver::Group out;
    out.completions = {Of(first), Of(second)};
    return out;
  }

  driver::Sampler sampler() {
    return [this](const driver::Turn& turn, int64_t place,
                  const driver::RolloutFleet::GenerateOptions& options,
                  std::function<void(absl::StatusOr<driver::Group>)> done) {
      const Request request{turn, place, options};
      size_t id = 0;
      {
        absl::MutexLock lock(&mu_);
        id = requests_.size();
        requests_.push_back(request);
        if (holds(request)) {
          held_[id] = {request.row(), std::move(done)};
          return std::function<void()>([this, id] { Cancel(id); });
        }
      }
      done(sample(request));
      return std::function<void()>([] {});
    };
  }

  // Waits until `count` requests have begun; false after a minute.
  bool AwaitRequests(size_t count) {
    absl::MutexLock lock(&mu_);
    const auto enough = [&] {
      mu_.AssertHeld();
      return requests_.size() >= count;
    };
    return mu_.AwaitWithTimeout(absl::Condition(&enough), absl::Minutes(1));
  }

  // Ends the held request of a row.
  void Release(int64_t row) {
    Request request;
    std::function<void(absl::StatusOr<driver::Group>)> done;
    {
      absl::MutexLock lock(&mu_);
      for (auto held = held_.begin(); held != held_.end(); ++held) {
        if (held->second.first != row) continue;
        request = requests_[held->first];
        done = std::move(held->second.second);
        held_.erase(held);
        break;
      }
    }
    done(sample(request));
  }

  std::vector<Request> requests() const {
    absl::MutexLock lock(&mu_);
    return requests_;
  }

  // Set before the loop begins; called from its threads.
  std::function<bool(const Request&)> holds = [](const Request&) { return false; };
  std::function<absl::StatusOr<driver::Group>(const Request&)> sample = [](const Request&) {
    return Pair("0", "1");
  };

 private:
  void Cancel(size_t id) {
    std::function<void(absl::StatusOr<driver::Group>)> done;
    {
      absl::MutexLock lock(&mu_);
      const auto held = held_.find(id);
      if (held == held_.end()) return;
      done = std::move(held->second.second);
      held_.erase(held);
    }
    done(absl::CancelledError("the group is no longer needed"));
  }

  mutable absl::Mutex mu_;
  std::vector<Request> requests_;
  // By request: its row and how to end it.
  std::map<size_t, std::pair<int64_t, std::function<void(absl::StatusOr<driver::Group>)>>> held_;
};

}  // namespace tandem::testing

#endif  // TANDEM_TESTS_FAKES_FAKE_SAMPLER_H_
