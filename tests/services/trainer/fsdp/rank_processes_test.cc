// The sharded model over processes, which meet through Gloo or share memory: three find the
// gradients that one finds alone.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/comm/choose_group.h"
#include "tests/services/trainer/fsdp/sharded_test_support.h"
#include "tests/support/status_matchers.h"

namespace tandem::trainer {
namespace {

constexpr int kRanks = 3;
constexpr char kRankVariable[] = "TANDEM_TEST_RANK";
constexpr char kPortVariable[] = "TANDEM_TEST_PORT";

// One rank's work; true where its gradients are right.
bool RunRank(int rank, int port, const std::string& backend) {
  at::set_num_threads(1);
  comm::GroupOptions group_options;
  group_options.name = "fsdp";
  group_options.rank = rank;
  group_options.size = kRanks;
  group_options.rendezvous.port = port;
  group_options.rendezvous.prefix = "test";
  group_options.timeout = absl::Seconds(60);
  auto group = comm::CreateGroupOf(backend, group_options);
  if (!group.ok()) {
    std::fprintf(stderr, "%s\n", group.status().ToString().c_str());
    return false;
  }
  model::ModelSpec spec = SmallSpec();
  spec.tie_word_embeddings = true;
  const std::vector<TokenSequence> sequences = RandomSequences(5, 9, spec.vocab_size, 3);
  WholeModel whole(spec, 1);
  for (const TokenSequence& sequence : sequences) {
    TestLoss(whole.Forward(Pack({sequence}))).backward();
  }
  ShardedModelOptions options;
  options.spec = spec;
  const comm::DeviceMesh mesh(**group);
  options.mesh = &mesh;
  auto model = ShardedModel::Create(options);
  if (!model.ok()) return false;
  SetParameters(**model, 1);
  for (const PackedBatch& batch : Deal(sequences, rank, kRanks, 2)) {
    const auto loss = (*model)->ForwardBackward(batch, TestLoss);
    if (!loss.ok()) {
      std::fprintf(stderr, "%s\n", loss.status().ToString().c_str());
      return false;
    }
  }
  if (!(*model)->ReduceGradients().ok()) return false;
  const std::vector<at::Tensor> actual = GatherParameters(**model, **group, &UnitShard::grad);
  const std::vector<at::Tensor> expected = whole.Gradients();
  if (actual.size() != expected.size()) return false;
  for (size_t u = 0; u < actual.size(); ++u) {
    const double difference = RelativeDifference(actual[u], expected[u]);
    if (!(difference < 1e-5)) {
      std::fprintf(stderr, "rank %d, unit %zu: difference %g\n", rank, u, difference);
      return false;
    }
  }
  return true;
}

// The binary starts itself again for each rank; the test that does so is not itself such a rank.
class RankProcesses : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Backends, RankProcesses, ::testing::Values("gloo", "shared_memory"),
                         [](const auto& info) { return info.param; });

TEST_P(RankProcesses, FindTheGradientsOfOneProcess) {
  if (const char* rank = std::getenv(kRankVariable); rank != nullptr) {
    std::_Exit(RunRank(std::atoi(rank), std::atoi(std::getenv(kPortVariable)), GetParam()) ? 0 : 1);
  }
  ASSERT_OK_AND_ASSIGN(const auto store, comm::StoreServer::Start());
  const std::string filter = absl::StrCat(
      "--gtest_filter=Backends/RankProcesses.FindTheGradientsOfOneProcess/", GetParam());
  std::vector<pid_t> children;
  for (int rank = 0; rank < kRanks; ++rank) {
    const std::string rank_text = std::to_string(rank);
    const std::string port_text = std::to_string(store->port());
    const pid_t parent = getpid();
    const pid_t child = fork();
    if (child == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != parent) _exit(3);
      setenv(kRankVariable, rank_text.c_str(), 1);
      setenv(kPortVariable, port_text.c_str(), 1);
      execl("/proc/self/exe", "rank_processes_test", filter.c_str(), static_cast<char*>(nullptr));
      _exit(3);
    }
    ASSERT_GT(child, 0);
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "status " << status;
  }
}

}  // namespace
}  // namespace tandem::trainer
