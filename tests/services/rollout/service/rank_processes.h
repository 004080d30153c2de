// The processes of one replica of several ranks, as their launcher starts them.
#ifndef TANDEM_TESTS_SERVICES_ROLLOUT_SERVICE_RANK_PROCESSES_H_
#define TANDEM_TESTS_SERVICES_ROLLOUT_SERVICE_RANK_PROCESSES_H_

#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/comm/process_group.h"
#include "common/net/reserved_port.h"
#include "common/rpc/channel.h"
#include "common/rpc/child_process.h"
#include "common/rpc/process.h"
#include "common/rpc/status_conversion.h"
#include "tandem/rollout/v1/rollout_service.grpc.pb.h"
#include "tests/support/program.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_data.h"

namespace tandem::rollout {

constexpr absl::Duration kTimeout = absl::Seconds(90);
constexpr char kStories[] = "models/tinystories-656k";

class RankProcessTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (std::getenv("TANDEM_BIN") == nullptr) GTEST_SKIP() << "TANDEM_BIN is not set; run by ctest";
    SKIP_WITHOUT_DATA(kStories);
  }

  // On a GPU all ranks share device `device`: each is a host of its own to NCCL, which refuses two
  // ranks of one host on a GPU.
  void Start(int size, double collective_timeout_s, bool shared_memory = true,
             const std::string& device = "cpu") {
    ASSERT_OK_AND_ASSIGN(const int port, net::ReservePort());
    for (int rank = 0; rank < size; ++rank) {
      rpc::ChildProcessOptions options;
      options.name = absl::StrCat("rank ", rank);
      options.argv = {testing::BinaryPath("tandem-rollout"),
                      "--model",
                      model_,
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
                      absl::StrCat("rollout.device=", device),
                      "--set",
                      "rollout.threads=1"};
      options.environment = {
          {"RANK", absl::StrCat(rank)},       {"LOCAL_RANK", absl::StrCat(rank)},
          {"WORLD_SIZE", absl::StrCat(size)}, {"LOCAL_WORLD_SIZE", absl::StrCat(size)},
          {"MASTER_ADDR", "127.0.0.1"},       {"MASTER_PORT", absl::StrCat(port)}};
      if (device != "cpu") {
        options.environment["NCCL_HOSTID"] = absl::StrCat("tandem-rank-", rank);
      }
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

  // Puts the replica to sleep and wakes it: it goes on to generate `ids`.
  void ExpectTheSameAfterSleep(const std::vector<uint32_t>& ids) {
    for (const std::vector<std::string>& args :
         {std::vector<std::string>{"pause", "--rollout", address_, "--release", "kv,weights"},
          std::vector<std::string>{"resume", "--rollout", address_}}) {
      const testing::ProgramResult result = testing::RunProgram("tandem", args);
      EXPECT_EQ(result.exit_code, 0) << result.err;
    }
    std::vector<uint32_t> again;
    ASSERT_OK(Generate(static_cast<int64_t>(ids.size()), again));
    EXPECT_EQ(again, ids);
  }

  const testing::TempFolder folder_;
  std::string model_ = testing::TestData(kStories);  // to serve
  std::vector<std::unique_ptr<rpc::ChildProcess>> ranks_;
  std::string address_;
  std::unique_ptr<v1::RolloutService::Stub> stub_;
};

}  // namespace tandem::rollout

#endif  // TANDEM_TESTS_SERVICES_ROLLOUT_SERVICE_RANK_PROCESSES_H_
