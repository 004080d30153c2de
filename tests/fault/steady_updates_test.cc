// Many updates of weights that do not change, as at a learning rate of 0, by processes that live
// on: every version has the same digest, and nothing piles up. How many is UPDATES. Memory that
// ranks share has a descriptor and no name, so it counts among those.
#include <dirent.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/fault/update_fleet.h"
#include "tests/support/status_matchers.h"

namespace tandem::testing {
namespace {

// Until the lists that are bounded are full, 64 updates, and allocators and gRPC's threads have
// settled.
constexpr int kWarmUp = UPDATES / 4;
constexpr absl::Duration kSoon = absl::Seconds(30);
// The C library's arenas and gRPC's pools move by pages; a leak of one bucket an update would be
// more.
constexpr int64_t kResidentSlackKib = 1024;
// gRPC adds and ends threads as calls come.
constexpr int kPoolSlack = 2;

int CountEntries(const std::string& folder) {
  int count = 0;
  for (const auto& unused : std::filesystem::directory_iterator(folder))
    count += unused.exists() || true;
  return count;
}

// What a process holds.
struct Held {
  int64_t resident_kib = 0;
  int threads = 0;
  int descriptors = 0;

  static Held By(pid_t pid) {
    const std::string folder = absl::StrCat("/proc/", pid);
    Held held;
    std::ifstream status(folder + "/status");
    for (std::string word; status >> word;) {
      if (word == "VmRSS:") status >> held.resident_kib;
    }
    held.threads = CountEntries(folder + "/task");
    held.descriptors = CountEntries(folder + "/fd");
    return held;
  }
};

class SteadyUpdates : public ::testing::TestWithParam<const char*> {
 protected:
  std::vector<Held> Look() {
    std::vector<Held> all;
    for (ActorProcess* process : {&fleet_.rank(0), &fleet_.rank(1), &fleet_.rollout(0),
                                  &fleet_.rollout(1), &fleet_.driver()}) {
      all.push_back(Held::By(process->pid()));
    }
    return all;
  }

  void Update(int64_t version) {
    if (version > 1) fleet_.Follow();
    fleet_.Publish(version);
    ASSERT_OK(fleet_.Result(fleet_.driver(), "answered", kSoon)) << "version " << version;
    ASSERT_OK(fleet_.Result(fleet_.rank(0), "published", kSoon));
    ASSERT_OK(fleet_.Result(fleet_.rank(1), "followed", kSoon));
  }

  UpdateFleet fleet_{
      UPDATE_ACTOR, {.transport = GetParam(), .update_timeout = kSoon, .backend = "shared_memory"}};
};
// Several programs are built of this file; their tests differ in name.
INSTANTIATE_TEST_SUITE_P(Transports, SteadyUpdates, ::testing::Values("reshard", "delta"),
                         [](const auto& info) { return absl::StrCat(info.param, UPDATES); });

TEST_P(SteadyUpdates, LeaveTheDigestAndEverythingThatProcessesHoldAsItWas) {
  setenv("TMPDIR", fleet_.folder().c_str(), 1);
  const absl::Status started = fleet_.Start();
  unsetenv("TMPDIR");
  ASSERT_OK(started);
  ASSERT_OK(fleet_.Prepare(1));
  ASSERT_NO_FATAL_FAILURE(Update(1));
  ASSERT_OK_AND_ASSIGN(const std::string digest, fleet_.LiveDigest(0, kSoon));
  const auto expect_digest = [&] {
    for (int i = 0; i < 2; ++i) {
      ASSERT_OK_AND_ASSIGN(const std::string live, fleet_.LiveDigest(i, kSoon));
      EXPECT_EQ(live, digest);
    }
  };

  std::vector<Held> before;
  int files = 0;
  for (int64_t version = 2; version <= UPDATES; ++version) {
    ASSERT_NO_FATAL_FAILURE(Update(version));
    if (version % 10 == 0) {
      ASSERT_NO_FATAL_FAILURE(expect_digest());
    }
    if (version != kWarmUp) continue;
    before = Look();
    files = CountEntries(fleet_.folder());
  }

  const std::vector<Held> after = Look();
  const char* const names[] = {"leader", "other rank", "rollout 0", "rollout 1", "driver"};
  for (size_t i = 0; i < after.size(); ++i) {
    std::cout << names[i] << ": " << before[i].resident_kib << " KiB, then "
              << after[i].resident_kib << "; threads " << before[i].threads << ", "
              << after[i].threads << "; descriptors " << before[i].descriptors << ", "
              << after[i].descriptors << "\n";
    EXPECT_LE(after[i].resident_kib, before[i].resident_kib + kResidentSlackKib) << names[i];
    EXPECT_LE(after[i].threads, before[i].threads + kPoolSlack) << names[i];
    EXPECT_LE(after[i].descriptors, before[i].descriptors + kPoolSlack) << names[i];
  }
  EXPECT_EQ(CountEntries(fleet_.folder()), files);
}

}  // namespace
}  // namespace tandem::testing
