// A replica of several tandem-rollout processes: it serves as one, and when a rank is killed or
// stopped its requests end with a status that names the rank, and its processes end.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/comm/process_group.h"
#include "common/rpc/channel.h"
#include "common/rpc/child_process.h"
#include "common/rpc/process.h"
#include "common/rpc/status_conversion.h"
#include "tandem/rollout/v1/rollout_service.grpc.pb.h"
#include "tests/support/addition_data.h"
#include "tests/support/program.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_data.h"

namespace tandem::rollout {
namespace {

using ::tandem::testing::JsonLines;
using ::tandem::testing::ProgramResult;
using ::tandem::testing::RunProgram;
using ::tandem::testing::TempFolder;
using ::testing::HasSubstr;

constexpr absl::Duration kTimeout = absl::Seconds(90);
constexpr char kStories[] = "models/tinystories-656k";

// A port that nobody has at this moment.
int FreePort() {
  auto store = comm::StoreServer::Start();
  return store.ok() ? (*store)->port() : 0;
}

class RankProcessTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (std::getenv("TANDEM_BIN") == nullptr) GTEST_SKIP() << "TANDEM_BIN is not set; run by ctest";
    SKIP_WITHOUT_DATA(kStories);
  }

  void Start(int size, double collective_timeout_s, bool shared_memory = true) {
    const int port = FreePort();
    for (int rank = 0; rank < size; ++rank) {
      rpc::ChildProcessOptions options;
      options.name = absl::StrCat("rank ", rank);
      options.argv = {testing::BinaryPath("tandem-rollout"),
                      "--model",
                      testing::TestData(kStories),
                      "--listen",
                      "127.0.0.1:0",
                      "--ready-file",
                      folder_ / absl::StrCat("ready-", rank),
                      "--set",
                      absl::StrCat("rollout.tensor_model_parallel_size=", size),
                      "--set",
                      absl::StrCat("rollout.collective_timeout_s=", collective_timeout_s),
                      "--set",
                      absl::StrCat("rollout.shared_memory=", shared_memory ? "true" : "false"),
                      "--set",
                      "rollout.kv_cache_megabytes=16",
                      "--set",
                      "rollout.threads=1"};
      options.environment = {
          {"RANK", absl::StrCat(rank)},       {"LOCAL_RANK", absl::StrCat(rank)},
          {"WORLD_SIZE", absl::StrCat(size)}, {"LOCAL_WORLD_SIZE", absl::StrCat(size)},
          {"MASTER_ADDR", "127.0.0.1"},       {"MASTER_PORT", absl::StrCat(port)}};
      options.log_path = folder_ / absl::StrCat("log-", rank);
      ASSERT_OK_AND_ASSIGN(auto process, rpc::ChildProcess::Start(std::move(options)));
      ranks_.push_back(std::move(process));
    }
    ASSERT_OK_AND_ASSIGN(address_,
                         rpc::WaitForReadyFile(folder_ / "ready-0", *ranks_[0], kTimeout));
    stub_ = v1::RolloutService::NewStub(rpc::MakeChannel(address_, {.retry = false}));
  }

  absl::Status Generate(int64_t max_tokens, std::vector<uint32_t>& ids,
                        const std::function<void()>& on_first = nullptr) {
    v1::GenerateRequest request;
    for (const uint32_t id : {1, 80, 147}) request.mutable_token_ids()->add_ids(id);
    request.mutable_sampling()->set_temperature(0);
    request.mutable_sampling()->set_max_tokens(max_tokens);
    request.mutable_sampling()->set_ignore_eos(true);
    request.mutable_sampling()->set_n(on_first ? 64 : 1);
    request.set_stream(true);
    const auto context = rpc::MakeContext(kTimeout);
    const auto reader = stub_->Generate(context.get(), request);
    v1::GenerateResponse response;
    bool first = true;
    while (reader->Read(&response)) {
      if (std::exchange(first, false) && on_first) on_first();
      if (response.index() > 0) continue;
      ids.insert(ids.end(), response.token_ids().begin(), response.token_ids().end());
    }
    return rpc::FromGrpcStatus(reader->Finish());
  }

  const TempFolder folder_;
  std::vector<std::unique_ptr<rpc::ChildProcess>> ranks_;
  std::string address_;
  std::unique_ptr<v1::RolloutService::Stub> stub_;
};

TEST_F(RankProcessTest, ServesAsOneRankAndSaysWhereItsRanksAre) {
  Start(2, 60);
  std::vector<uint32_t> split;
  ASSERT_OK(Generate(100, split));
  v1::GetServerInfoResponse info;
  const auto context = rpc::MakeContext(kTimeout);
  ASSERT_OK(rpc::FromGrpcStatus(stub_->GetServerInfo(context.get(), {}, &info)));
  EXPECT_EQ(info.rank_addresses_size(), 2);
  EXPECT_EQ(info.rank_addresses(0), address_);

  const TempFolder folder;
  folder.Write("in.jsonl", R"({"ids": [1, 80, 147]})");
  const ProgramResult whole =
      RunProgram("tandem", {"generate", "--model", testing::TestData(kStories), "--input",
                            folder / "in.jsonl", "--max-tokens", "100", "--temperature", "0",
                            "--set", "rollout.threads=1", "--json"});
  ASSERT_EQ(whole.exit_code, 0) << whole.err;
  const auto ids = JsonLines(whole.out)[0]["ids"].get<std::vector<uint32_t>>();
  // It ends at an end-of-sequence id, if it meets one.
  ASSERT_LE(ids.size(), split.size());
  split.resize(ids.size());
  EXPECT_EQ(split, ids);

  // Asleep and awake again, over both.
  for (const std::vector<std::string>& args :
       {std::vector<std::string>{"pause", "--rollout", address_, "--release", "kv,weights"},
        std::vector<std::string>{"resume", "--rollout", address_}}) {
    const ProgramResult result = RunProgram("tandem", args);
    EXPECT_EQ(result.exit_code, 0) << result.err;
  }
  std::vector<uint32_t> again;
  ASSERT_OK(Generate(static_cast<int64_t>(ids.size()), again));
  EXPECT_EQ(again, ids);

  // Rank 0 drains and tells the other to stop.
  ranks_[0]->Terminate();
  for (auto& rank : ranks_) {
    ASSERT_TRUE(rank->Wait(kTimeout));
    EXPECT_OK(rank->ExitStatus()) << rank->name();
  }
}

struct Fault {
  const char* name;
  int signal;
  bool shared_memory;
};

class RankFaultTest : public RankProcessTest, public ::testing::WithParamInterface<Fault> {};

TEST_P(RankFaultTest, EndsItsRequestsWithTheRanksName) {
  const Fault& fault = GetParam();
  Start(3, 6, fault.shared_memory);
  std::vector<uint32_t> ids;
  const absl::Status status = Generate(500, ids, [&] { kill(ranks_[1]->pid(), fault.signal); });

  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("rank 1 ("));
  EXPECT_THAT(std::string(status.message()), ::testing::Not(HasSubstr("rank 2 (")));
  // The others end by themselves, with an error.
  for (const int rank : {0, 2}) {
    ASSERT_TRUE(ranks_[rank]->Wait(kTimeout)) << rank;
    EXPECT_EQ(ranks_[rank]->ExitDescription(), "exited with 1") << rank;
  }
  if (fault.signal == SIGSTOP) kill(ranks_[1]->pid(), SIGKILL);
}

TEST_P(RankFaultTest, IsNoticedWithoutRequests) {
  const Fault& fault = GetParam();
  Start(2, 5, fault.shared_memory);
  kill(ranks_[1]->pid(), fault.signal);
  ASSERT_TRUE(ranks_[0]->Wait(kTimeout));
  EXPECT_EQ(ranks_[0]->ExitDescription(), "exited with 1");
  EXPECT_THAT(testing::ReadWhole(folder_ / "log-0"), HasSubstr("rank 1 ("));
  if (fault.signal == SIGSTOP) kill(ranks_[1]->pid(), SIGKILL);
}

INSTANTIATE_TEST_SUITE_P(Faults, RankFaultTest,
                         ::testing::Values(Fault{"Killed", SIGKILL, true},
                                           Fault{"Stopped", SIGSTOP, true},
                                           Fault{"KilledOverGloo", SIGKILL, false},
                                           Fault{"StoppedOverGloo", SIGSTOP, false}),
                         [](const auto& info) { return info.param.name; });

TEST_F(RankProcessTest, AStoppedRankZeroIsGivenUpByTheOthers) {
  Start(2, 5);
  kill(ranks_[0]->pid(), SIGSTOP);
  ASSERT_TRUE(ranks_[1]->Wait(kTimeout));
  EXPECT_EQ(ranks_[1]->ExitDescription(), "exited with 1");
  kill(ranks_[0]->pid(), SIGKILL);
}

}  // namespace
}  // namespace tandem::rollout
