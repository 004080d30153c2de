// ForgetfulDevice: a Device that leaves out some waits, to see whether the simulator finds that.
//
//   auto device = std::make_shared<ForgetfulDevice>(real, [](absl::string_view what) {
//     return what == trainer::kFreshBuffer;      // waits for such events are left out
//   });
//   ...
//   EXPECT_GT(device->num_forgotten(), 0);
#ifndef TANDEM_TESTS_FAKES_FORGETFUL_DEVICE_H_
#define TANDEM_TESTS_FAKES_FORGETFUL_DEVICE_H_

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "common/device/device.h"

namespace tandem::testing {

class ForgetfulDevice : public device::Device {
 public:
  // What Synchronize() is called in `forgets`.
  static constexpr char kSynchronize[] = "synchronize";

  ForgetfulDevice(std::shared_ptr<device::Device> real,
                  std::function<bool(absl::string_view what)> forgets)
      : real_(std::move(real)), forgets_(std::move(forgets)) {}

  int num_forgotten() const { return num_forgotten_; }

  c10::Device device() const override { return real_->device(); }
  bool on_host() const override { return real_->on_host(); }
  void MakeCurrent() override { real_->MakeCurrent(); }
  std::unique_ptr<device::Stream> NewStream(device::Priority priority) override {
    return real_->NewStream(priority);
  }
  std::shared_ptr<void> Use(const device::Stream& stream) override { return real_->Use(stream); }
  std::shared_ptr<device::Event> Record(absl::string_view what) override {
    return std::make_shared<Named>(real_->Record(what), std::string(what));
  }
  void Wait(const device::Event& event) override {
    const auto& named = static_cast<const Named&>(event);
    if (Forgets(named.what)) return;
    real_->Wait(*named.real);
  }
  bool IsDone(const device::Event& event) override {
    return real_->IsDone(*static_cast<const Named&>(event).real);
  }
  std::unique_ptr<device::Event> RecordTime() override { return real_->RecordTime(); }
  double SecondsBetween(const device::Event& begin, const device::Event& end) override {
    return real_->SecondsBetween(begin, end);
  }
  void Synchronize() override {
    if (!Forgets(kSynchronize)) real_->Synchronize();
  }
  absl::StatusOr<at::Tensor> Buffer(int64_t size_bytes) override {
    return real_->Buffer(size_bytes);
  }
  absl::StatusOr<at::Tensor> HostBuffer(int64_t size_bytes) override {
    return real_->HostBuffer(size_bytes);
  }
  int64_t peak_tensor_bytes() const override { return real_->peak_tensor_bytes(); }
  absl::Status Transfer(const at::Tensor& from, const at::Tensor& to) override {
    return real_->Transfer(from, to);
  }

 private:
  struct Named : device::Event {
    Named(std::shared_ptr<device::Event> real, std::string what)
        : real(std::move(real)), what(std::move(what)) {}
    const std::shared_ptr<device::Event> real;
    const std::string what;
  };

  bool Forgets(absl::string_view what) {
    if (!forgets_(what)) return false;
    ++num_forgotten_;
    return true;
  }

  const std::shared_ptr<device::Device> real_;
  const std::function<bool(absl::string_view)> forgets_;
  std::atomic<int> num_forgotten_{0};
};

}  // namespace tandem::testing

#endif  // TANDEM_TESTS_FAKES_FORGETFUL_DEVICE_H_
