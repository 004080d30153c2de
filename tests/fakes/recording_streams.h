// RecordingStreams: a DeviceStreams on a CPU that records what the side stream has waited for.
//
//   RecordingStreams streams;
//   streams.Compute();                                   // a kernel on the compute stream
//   streams.IssueAfter({mark.get()}, [] {});
//   streams.issues().back().waited_for == streams.computed()   // it starts after that kernel
//
// One thread.
#ifndef TANDEM_TESTS_FAKES_RECORDING_STREAMS_H_
#define TANDEM_TESTS_FAKES_RECORDING_STREAMS_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "services/trainer/fsdp/device_streams.h"

namespace tandem::testing {

class RecordingStreams : public trainer::DeviceStreams {
 public:
  // An operation on the side stream. It starts once the compute stream has reached `waited_for`; at
  // its issue the compute stream's end was `computed`.
  struct Issue {
    int64_t waited_for = 0;
    int64_t computed = 0;
  };

  struct Options {
    bool has_clock = false;  // whether it times compute, as a GPU does
  };
  explicit RecordingStreams(Options options) : options_(options) {}
  RecordingStreams() : RecordingStreams(Options()) {}

  // Issues a kernel to the compute stream that takes this long.
  void Compute(double seconds = 0) {
    ++computed_;
    seconds_ += seconds;
  }
  int64_t computed() const { return computed_; }
  const std::vector<Issue>& issues() const { return issues_; }

  static int64_t PointOf(const Mark& mark) { return static_cast<const Point&>(mark).at; }

  std::shared_ptr<Mark> MarkCompute() override { return std::make_shared<Point>(computed_); }
  void IssueAfter(absl::Span<const Mark* const> after, absl::FunctionRef<void()> issue) override {
    // A stream runs in order: what it has waited for once holds for everything later.
    for (const Mark* mark : after) {
      if (mark != nullptr) waited_for_ = std::max(waited_for_, PointOf(*mark));
    }
    issues_.push_back({waited_for_, computed_});
    issue();
  }
  std::unique_ptr<Moment> MarkTime() override {
    return options_.has_clock ? std::make_unique<At>(*this) : nullptr;
  }
  double SecondsBetween(const Moment& begin, const Moment& end) override {
    return static_cast<const At&>(end).seconds - static_cast<const At&>(begin).seconds;
  }
  // Most moments that existed at once.
  int peak_moments() const { return peak_moments_; }
  int64_t peak_tensor_bytes() const override { return 0; }

 private:
  struct Point : Mark {
    explicit Point(int64_t at) : at(at) {}
    const int64_t at;
  };

  struct At : Moment {
    explicit At(RecordingStreams& owner) : owner(owner), seconds(owner.seconds_) {
      owner.peak_moments_ = std::max(owner.peak_moments_, ++owner.num_moments_);
    }
    ~At() override { --owner.num_moments_; }
    RecordingStreams& owner;
    const double seconds;
  };

  const Options options_;
  double seconds_ = 0;
  int num_moments_ = 0;
  int peak_moments_ = 0;
  int64_t computed_ = 0;
  int64_t waited_for_ = 0;
  std::vector<Issue> issues_;
};

}  // namespace tandem::testing

#endif  // TANDEM_TESTS_FAKES_RECORDING_STREAMS_H_
