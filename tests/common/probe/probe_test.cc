// Groups of services in one process that probe each other over the loopback.
#include <gmock/gmock.h>
#include <grpcpp/client_context.h>
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/host/process_memory.h"
#include "common/probe/diagnostics_service.h"
#include "common/probe/group_probe.h"
#include "common/probe/pair_echo.h"
#include "common/probe/probe_pattern.h"
#include "common/rpc/channel.h"
#include "common/rpc/server.h"
#include "common/rpc/status_conversion.h"
#include "tandem/common/v1/error.pb.h"
#include "tests/support/sanitizer.h"
#include "tests/support/status_matchers.h"

namespace tandem::probe {
namespace {

using diagnostics::v1::DiagnosticsService;
using diagnostics::v1::ProbeGroupRequest;
using diagnostics::v1::ProbeGroupResponse;
using diagnostics::v1::RankProbe;
using ::tandem::testing::StatusIs;
using ::testing::HasSubstr;

struct Process {
  explicit Process(DiagnosticsServiceImpl::Options options = {}) : service(std::move(options)) {
    auto started = rpc::Server::Start({.role = "test", .on_drain = [this] { service.Shutdown(); }},
                                      {&service});
    EXPECT_OK(started.status());
    server = *std::move(started);
    stub = DiagnosticsService::NewStub(rpc::MakeChannel(server->address(), {.retry = false}));
  }

  DiagnosticsServiceImpl service;
  std::unique_ptr<rpc::Server> server;
  std::unique_ptr<DiagnosticsService::Stub> stub;
};

ProbeGroupRequest Request(int rank, int size, std::vector<int64_t> sizes = {4096, 1 << 20},
                          int seconds = 30) {
  ProbeGroupRequest request;
  request.set_first_rank(rank);
  request.set_size(size);
  request.set_backend("gloo");
  request.mutable_sizes_bytes()->Add(sizes.begin(), sizes.end());
  request.mutable_timeout()->set_seconds(seconds);
  return request;
}

// One call to its end; the rendezvous goes to `on_rendezvous`.
absl::Status Call(
    Process& process, const ProbeGroupRequest& request, std::vector<RankProbe>& ranks,
    const std::function<void(const common::v1::GroupRendezvous&)>& on_rendezvous = {}) {
  const auto context = rpc::MakeContext(absl::Seconds(60));
  const auto reader = process.stub->ProbeGroup(context.get(), request);
  ProbeGroupResponse message;
  while (reader->Read(&message)) {
    if (message.has_rendezvous() && on_rendezvous) on_rendezvous(message.rendezvous());
    for (const RankProbe& rank : message.results().ranks()) ranks.push_back(rank);
  }
  return rpc::FromGrpcStatus(reader->Finish());
}

// Ranks 0 to size - 1, of which `absent` does not come.
std::vector<std::vector<RankProbe>> RunGroup(std::vector<std::unique_ptr<Process>>& processes,
                                             int seconds = 30, int absent = -1) {
  const int size = static_cast<int>(processes.size());
  std::vector<std::vector<RankProbe>> results(size);
  std::vector<std::thread> threads;
  EXPECT_OK(Call(*processes[0], Request(0, size, {4096, 1 << 20}, seconds), results[0],
                 [&](const common::v1::GroupRendezvous& rendezvous) {
                   EXPECT_EQ(rendezvous.secret().size(), 32u);
                   for (int rank = 1; rank < size; ++rank) {
                     if (rank == absent) continue;
                     threads.emplace_back([&, rank, rendezvous] {
                       ProbeGroupRequest request = Request(rank, size, {4096, 1 << 20}, seconds);
                       *request.mutable_rendezvous() = rendezvous;
                       EXPECT_OK(Call(*processes[rank], request, results[rank]));
                     });
                   }
                 }));
  for (std::thread& thread : threads) thread.join();
  return results;
}

TEST(ProbeGroup, EveryRankChecksTheSumsAndTimesEveryPair) {
  std::vector<std::unique_ptr<Process>> processes;
  for (int i = 0; i < 3; ++i) processes.push_back(std::make_unique<Process>());
  const auto results = RunGroup(processes);
  for (int rank = 0; rank < 3; ++rank) {
    ASSERT_EQ(results[rank].size(), 1u);
    const RankProbe& probe = results[rank][0];
    EXPECT_EQ(probe.rank(), rank);
    EXPECT_EQ(probe.error(), "");
    EXPECT_EQ(probe.address(), "127.0.0.1");
    ASSERT_EQ(probe.pairs_size(), 2);
    for (const auto& pair : probe.pairs()) {
      EXPECT_NE(pair.peer(), rank);
      EXPECT_EQ(pair.error(), "");
      EXPECT_GT(pair.round_trip_seconds(), 0);
      EXPECT_THAT(pair.address(), HasSubstr("127.0.0.1:"));
    }
    ASSERT_EQ(probe.reduces_size(), 2);
    EXPECT_EQ(probe.reduces(1).size_bytes(), 1 << 20);
    EXPECT_GT(probe.reduces(1).bytes_per_second(), 0);
    EXPECT_EQ(probe.reduces(0).num_wrong_elements() + probe.reduces(1).num_wrong_elements(), 0);
  }
}

TEST(ProbeGroup, ARankThatDoesNotComeIsNamedAndNothingIsReduced) {
  std::vector<std::unique_ptr<Process>> processes;
  for (int i = 0; i < 3; ++i) processes.push_back(std::make_unique<Process>());
  const auto results = RunGroup(processes, /*seconds=*/6, /*absent=*/2);
  for (int rank = 0; rank < 2; ++rank) {
    ASSERT_EQ(results[rank].size(), 1u);
    ASSERT_EQ(results[rank][0].pairs_size(), 2);
    EXPECT_EQ(results[rank][0].pairs(0).error(), "");
    EXPECT_EQ(results[rank][0].pairs(1).peer(), 2);
    EXPECT_THAT(results[rank][0].pairs(1).error(), HasSubstr("did not join the rendezvous"));
    EXPECT_EQ(results[rank][0].reduces_size(), 0);
  }
}

TEST(ProbeGroup, WhoDoesNotKnowTheSecretIsNotLetIn) {
  auto first = std::make_unique<Process>();
  auto second = std::make_unique<Process>();
  std::vector<RankProbe> of_first, of_second;
  std::thread stranger;
  EXPECT_OK(Call(*first, Request(0, 2, {4096}, 6), of_first,
                 [&](const common::v1::GroupRendezvous& rendezvous) {
                   stranger = std::thread([&, rendezvous] {
                     ProbeGroupRequest request = Request(1, 2, {4096}, 6);
                     *request.mutable_rendezvous() = rendezvous;
                     request.mutable_rendezvous()->set_secret(std::string(32, 'x'));
                     EXPECT_OK(Call(*second, request, of_second));
                   });
                 }));
  stranger.join();
  ASSERT_EQ(of_second.size(), 1u);
  EXPECT_NE(of_second[0].error(), "");
  ASSERT_EQ(of_first[0].pairs_size(), 1);
  EXPECT_NE(of_first[0].pairs(0).error(), "");
}

TEST(ProbeGroup, DisturbsNobodyWhoIsAtSomething) {
  DiagnosticsServiceImpl::Options options;
  options.busy = [] {
    return rpc::WithReason(absl::FailedPreconditionError("the trainer is training"), "BUSY");
  };
  Process process(std::move(options));
  std::vector<RankProbe> ranks;
  const absl::Status status = Call(process, Request(0, 2), ranks);
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("training")));
  EXPECT_EQ(rpc::GetDetail<common::v1::ErrorInfo>(status)->reason(), "BUSY");
  // What it reaches may be asked all the same.
  diagnostics::v1::CheckReachRequest request;
  request.add_addresses(process.server->address());
  diagnostics::v1::CheckReachResponse response;
  const auto context = rpc::MakeContext(absl::Seconds(30));
  ASSERT_OK(rpc::FromGrpcStatus(process.stub->CheckReach(context.get(), request, &response)));
  ASSERT_EQ(response.processes_size(), 1);
  EXPECT_EQ(response.processes(0).reached(0).outcome(), diagnostics::v1::REACH_OUTCOME_REACHED);
  EXPECT_GT(response.processes(0).host().available_bytes(), 0);
}

TEST(ProbeGroup, OneAtATimeAndADrainEndsIt) {
  auto process = std::make_unique<Process>();
  std::vector<RankProbe> ranks, others;
  // The other rank never comes.
  EXPECT_OK(Call(*process, Request(0, 2, {4096}, 60), ranks, [&](const auto&) {
    EXPECT_THAT(Call(*process, Request(0, 2), others),
                StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("another probe")));
    process->service.Shutdown();
  }));
  ASSERT_EQ(ranks.size(), 1u);
  EXPECT_THAT(Call(*process, Request(0, 2), others),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("stopping")));
}

TEST(ProbeGroup, RefusesWhatIsTooLarge) {
  Process process;
  std::vector<RankProbe> ranks;
  const auto refused = [&](const ProbeGroupRequest& request, const std::string& field) {
    EXPECT_THAT(Call(process, request, ranks),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(field)));
  };
  refused(Request(0, 1), "size");
  refused(Request(0, kMaxProbeRanks + 1), "size");
  refused(Request(2, 2), "first_rank");
  refused(Request(1, 2), "rendezvous");
  refused(Request(0, 2, {kMaxProbeBytes + 1}), "sizes_bytes");
  refused(Request(0, 2, {0}), "sizes_bytes");
  refused(Request(0, 2, std::vector<int64_t>(9, 4096)), "sizes_bytes");
  refused(Request(0, 2, {4096}, 1000), "timeout");
  ProbeGroupRequest other = Request(0, 2);
  other.set_backend("mpi");
  refused(other, "backend");
  diagnostics::v1::CheckReachRequest many;
  for (int i = 0; i < 5000; ++i) many.add_addresses("127.0.0.1:1");
  diagnostics::v1::CheckReachResponse response;
  const auto context = rpc::MakeContext(absl::Seconds(30));
  EXPECT_THAT(rpc::FromGrpcStatus(process.stub->CheckReach(context.get(), many, &response)),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("addresses")));
}

int64_t PeakBytes() {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("VmHWM:", 0) == 0) return std::stoll(line.substr(6)) * 1024;
  }
  return 0;
}

TEST(ProbePattern, TakesNoMemoryButTheTensors) {
  if (testing::kSanitizerKeepsMemory) GTEST_SKIP() << "the sanitizer keeps memory of its own";
  constexpr int64_t kBytes = int64_t{64} << 20;
  const int64_t before = host::ResidentBytes();
  std::ofstream("/proc/self/clear_refs") << "5";  // the peak begins anew
  {
    const at::Tensor tensor = ProbePattern(kBytes / 4, 0);
    EXPECT_EQ(CountWrongElements(tensor, 1), 0);
  }
  EXPECT_LT(PeakBytes() - before, kBytes + (8 << 20));
  EXPECT_LT(host::ResidentBytes() - before, 8 << 20);
}

TEST(ProbePattern, AWrongElementIsSeen) {
  for (const int size : {2, 3, 1024}) {
    at::Tensor sum = ProbePattern(5000, 0);
    for (int rank = 1; rank < size; ++rank) sum = sum + ProbePattern(5000, rank);
    EXPECT_EQ(CountWrongElements(sum, size), 0) << size;
    float* const values = sum.data_ptr<float>();
    values[17] += 1;
    values[4999] = values[4998];
    EXPECT_EQ(CountWrongElements(sum, size), 2) << size;
    // A rank that was left out, or counted twice.
    EXPECT_EQ(CountWrongElements(sum - ProbePattern(5000, 1), size), 5000) << size;
  }
}

}  // namespace
}  // namespace tandem::probe
