#include "services/trainer/fsdp/phase_clock.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "tests/fakes/recording_device.h"

namespace tandem::trainer {
namespace {

using ::tandem::testing::RecordingDevice;

std::map<std::string, double> TakeAll(PhaseClock& clock) {
  std::map<std::string, double> out;
  for (const auto& [phase, seconds] : clock.Take()) out[phase] = seconds;
  return out;
}

TEST(PhaseClock, TheDevicesTimeCountsNotTheHosts) {
  RecordingDevice device({.has_clock = true});
  PhaseClock clock(&device);
  {
    const PhaseClock::Scope scope(clock, Phase::kForward);
    device.Compute(2.0);
  }
  device.Compute(8.0);  // in no phase
  {
    const PhaseClock::Scope scope(clock, Phase::kAllGatherWait);
    device.Compute(0.5);
  }
  const std::map<std::string, double> phases = TakeAll(clock);
  EXPECT_EQ(phases.at("forward"), 2.0);
  EXPECT_EQ(phases.at("all_gather_wait"), 0.5);
  EXPECT_EQ(phases.at("backward"), 0.0);
  EXPECT_EQ(TakeAll(clock).at("forward"), 0.0);
}

TEST(PhaseClock, AStepOfManyScopesKeepsTheirSum) {
  RecordingDevice device({.has_clock = true});
  PhaseClock clock(&device);
  for (int i = 0; i < 10000; ++i) {
    const PhaseClock::Scope scope(clock, Phase::kBackward);
    device.Compute(1.0);
  }
  EXPECT_LT(device.peak_moments(), 10000);
  EXPECT_EQ(TakeAll(clock).at("backward"), 10000.0);
}

TEST(PhaseClock, OnACpuTheHostsClockMeasures) {
  RecordingDevice device;
  PhaseClock clock(&device);
  { const PhaseClock::Scope scope(clock, Phase::kHead); }
  EXPECT_GE(TakeAll(clock).at("head"), 0.0);
  EXPECT_EQ(device.peak_moments(), 0);
}

}  // namespace
}  // namespace tandem::trainer
