// The simulated devices as LibTorch sees them: the interface that any accelerator implements
// (common/device/README.md).
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/Allocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/autograd.h>

#include <utility>

#include "tests/simulator/accelerator.h"
#include "tests/simulator/memory.h"

namespace tandem::testing {
namespace {

using c10::Device;
using c10::DeviceIndex;
using c10::Stream;
using Point = SimulatedAccelerator::Point;

SimulatedAccelerator& Accelerator() { return SimulatedAccelerator::Get(); }

const Point& PointOf(void* event) { return *static_cast<const Point*>(event); }

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return c10::kPrivateUse1; }
  Device exchangeDevice(Device device) const override {
    const Device before = getDevice();
    setDevice(device);
    return before;
  }
  Device getDevice() const override {
    return {c10::kPrivateUse1, static_cast<DeviceIndex>(SimulatedAccelerator::current_device())};
  }
  void setDevice(Device device) const override {
    TORCH_CHECK(device.index() < SimulatedAccelerator::kDevices, "no device ", device);
    uncheckedSetDevice(device);
  }
  void uncheckedSetDevice(Device device) const noexcept override {
    if (device.index() >= 0) SimulatedAccelerator::current_device() = device.index();
  }
  DeviceIndex deviceCount() const noexcept override { return SimulatedAccelerator::kDevices; }

  Stream getStream(Device device) const override {
    return SimulatedAccelerator::CurrentStream(IndexOf(device));
  }
  Stream getDefaultStream(Device device) const override {
    return Stream(Stream::DEFAULT, {c10::kPrivateUse1, static_cast<DeviceIndex>(IndexOf(device))});
  }
  Stream getStreamFromGlobalPool(Device device, bool) const override {
    return Accelerator().StreamFromPool(IndexOf(device));
  }
  Stream getNewStream(Device device, int) const override {
    return Accelerator().StreamFromPool(IndexOf(device));
  }
  Stream exchangeStream(Stream stream) const override {
    return SimulatedAccelerator::ExchangeStream(stream);
  }
  bool queryStream(const Stream& stream) const override {
    return Accelerator().Query(Accelerator().Record(stream));
  }
  void synchronizeStream(const Stream& stream) const override { Accelerator().Synchronize(stream); }
  void synchronizeDevice(DeviceIndex device) const override {
    Accelerator().SynchronizeDevice(device);
  }

  void record(void** event, const Stream& stream, DeviceIndex, c10::EventFlag) const override {
    if (*event == nullptr) *event = new Point();
    *static_cast<Point*>(*event) = Accelerator().Record(stream);
  }
  void block(void* event, const Stream& stream) const override {
    if (event != nullptr) Accelerator().Wait(stream, PointOf(event));
  }
  bool queryEvent(void* event) const override {
    return event == nullptr || Accelerator().Query(PointOf(event));
  }
  void synchronizeEvent(void* event) const override {
    if (event != nullptr) Accelerator().Synchronize(PointOf(event));
  }
  void destroyEvent(void* event, DeviceIndex) const noexcept override {
    delete static_cast<Point*>(event);
  }
  double elapsedTime(void* begin, void* end, DeviceIndex) const override {
    return static_cast<double>(*PointOf(end).reached_ns - *PointOf(begin).reached_ns) / 1e6;
  }

 private:
  static int IndexOf(Device device) {
    return device.has_index() ? device.index() : SimulatedAccelerator::current_device();
  }
};

void FreeBlock(void* block) { SimulatedMemory::Get().Free(block); }
void FreePinnedBlock(void* block) { SimulatedMemory::Get().FreePinned(block); }

class DeviceMemoryAllocator final : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(size_t size_bytes) override {
    const int device = SimulatedAccelerator::current_device();
    void* const block = SimulatedMemory::Get().Allocate(
        device, SimulatedAccelerator::CurrentStream(device).id(), size_bytes);
    return {block, block, &FreeBlock, Accelerator().device(device)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &FreeBlock; }
  void copy_data(void*, const void*, size_t) const override {
    TORCH_CHECK(false, "raw copies of device memory are not simulated");
  }
  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t) override {}
  void recordStream(const c10::DataPtr&, Stream) override {
    TORCH_CHECK(false, "record_stream is not simulated");
  }
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(DeviceIndex device) override {
    c10::CachingDeviceAllocator::DeviceStats stats;
    auto& bytes =
        stats.allocated_bytes[static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE)];
    bytes.current = static_cast<int64_t>(SimulatedMemory::Get().allocated_bytes(device));
    bytes.peak = static_cast<int64_t>(SimulatedMemory::Get().peak_bytes(device));
    return stats;
  }
  void resetAccumulatedStats(DeviceIndex) override {}
  void resetPeakStats(DeviceIndex) override {}
};

class PinnedAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t size_bytes) override {
    void* const block = SimulatedMemory::Get().AllocatePinned(size_bytes);
    return {block, block, &FreePinnedBlock, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &FreePinnedBlock; }
  void copy_data(void* to, const void* from, size_t size_bytes) const override {
    default_copy_data(to, from, size_bytes);
  }
};

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(DeviceIndex) const override { return true; }
  DeviceIndex deviceCount() const override { return SimulatedAccelerator::kDevices; }
  void setCurrentDevice(DeviceIndex device) const override {
    SimulatedAccelerator::current_device() = device;
  }
  DeviceIndex getCurrentDevice() const override {
    return static_cast<DeviceIndex>(SimulatedAccelerator::current_device());
  }
  DeviceIndex exchangeDevice(DeviceIndex device) const override {
    return static_cast<DeviceIndex>(
        std::exchange(SimulatedAccelerator::current_device(), static_cast<int>(device)));
  }
  DeviceIndex maybeExchangeDevice(DeviceIndex device) const override {
    return device < 0 ? getCurrentDevice() : exchangeDevice(device);
  }
  Device getDeviceFromPtr(void* data) const override {
    const int device = SimulatedMemory::Get().DeviceOf(data);
    TORCH_CHECK(device >= 0, data, " is no address of a simulated device");
    return Accelerator().device(device);
  }
  bool isPinnedPtr(const void* data) const override {
    return SimulatedMemory::Get().IsPinned(data);
  }
  c10::Allocator* getPinnedMemoryAllocator() const override {
    static PinnedAllocator& allocator = *new PinnedAllocator();
    return &allocator;
  }
};

}  // namespace

void RegisterTorchDevice() {
  c10::register_privateuse1_backend("simulated");
  static Guard& guard = *new Guard();
  static const c10::impl::DeviceGuardImplRegistrar registrar(c10::kPrivateUse1, &guard);
  static DeviceMemoryAllocator& allocator = *new DeviceMemoryAllocator();
  c10::SetAllocator(c10::kPrivateUse1, &allocator);
  static Hooks& hooks = *new Hooks();
  at::RegisterPrivateUse1HooksInterface(&hooks);
}

}  // namespace tandem::testing
