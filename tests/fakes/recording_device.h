// RecordingDevice: a Device on a CPU that records what its side stream has waited for.
//
//   RecordingDevice device;
//   device::SideStream side(device);
//   device.Compute();                                    // a kernel on the compute stream
//   side.IssueAfter({event.get()}, [] {});
//   device.issues().back().waited_for == device.computed()   // it starts after that kernel
//
// One thread.
#ifndef TANDEM_TESTS_FAKES_RECORDING_DEVICE_H_
#define TANDEM_TESTS_FAKES_RECORDING_DEVICE_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "common/device/cpu_device.h"

namespace tandem::testing {

class RecordingDevice : public device::CpuDevice {
 public:
  // A turn of the side stream. What it issues starts once the compute stream has reached
  // `waited_for`; at its end the compute stream's end was `computed`.
  struct Issue {
    int64_t waited_for = 0;
    int64_t computed = 0;
  };

  struct Options {
    bool has_clock = false;  // whether it times compute, as a GPU does
  };
  explicit RecordingDevice(Options options) : options_(options) {}
  RecordingDevice() : RecordingDevice(Options()) {}

  // Issues a kernel to the compute stream that takes this long.
  void Compute(double seconds = 0) {
    ++computed_;
    seconds_ += seconds;
  }
  int64_t computed() const { return computed_; }
  const std::vector<Issue>& issues() const { return issues_; }

  static int64_t PointOf(const device::Event& event) { return static_cast<const Point&>(event).at; }

  std::unique_ptr<device::Stream> NewStream(device::Priority) override {
    return std::make_unique<device::Stream>();
  }
  std::shared_ptr<void> Use(const device::Stream&) override {
    return std::make_shared<Turn>(*this);
  }
  std::shared_ptr<device::Event> Record(absl::string_view) override {
    return std::make_shared<Point>(computed_);
  }
  // A stream runs in order: what it has waited for once holds for everything later.
  void Wait(const device::Event& event) override {
    waited_for_ = std::max(waited_for_, PointOf(event));
  }
  std::unique_ptr<device::Event> RecordTime() override {
    return options_.has_clock ? std::make_unique<Moment>(*this) : nullptr;
  }
  double SecondsBetween(const device::Event& begin, const device::Event& end) override {
    return static_cast<const Moment&>(end).seconds - static_cast<const Moment&>(begin).seconds;
  }
  // Most moments that existed at once.
  int peak_moments() const { return peak_moments_; }

 private:
  struct Turn {
    explicit Turn(RecordingDevice& owner) : owner(owner) {}
    ~Turn() { owner.issues_.push_back({owner.waited_for_, owner.computed_}); }
    RecordingDevice& owner;
  };

  struct Point : device::Event {
    explicit Point(int64_t at) : at(at) {}
    const int64_t at;
  };

  struct Moment : device::Event {
    explicit Moment(RecordingDevice& owner) : owner(owner), seconds(owner.seconds_) {
      owner.peak_moments_ = std::max(owner.peak_moments_, ++owner.num_moments_);
    }
    ~Moment() override { --owner.num_moments_; }
    RecordingDevice& owner;
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

#endif  // TANDEM_TESTS_FAKES_RECORDING_DEVICE_H_
