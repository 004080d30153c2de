#include "tests/support/interrupted_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <future>
#include <iterator>
#include <random>
#include <thread>

#include "common/rpc/channel.h"
#include "tandem/trainer/v1/trainer_service.grpc.pb.h"
#include "tests/support/addition_data.h"
#include "tests/support/run_processes.h"

namespace tandem::testing {
namespace {

namespace fs = std::filesystem;
using std::chrono::steady_clock;

constexpr int kRunSeconds = 240;

const char* NameOf(Moment moment) {
  switch (moment) {
    case Moment::kStart:
      return "Start";
    case Moment::kGeneration:
      return "Generation";
    case Moment::kTraining:
      return "Training";
    case Moment::kPublishing:
      return "Publishing";
    case Moment::kSnapshot:
      return "Snapshot";
    case Moment::kWriting:
      return "Writing";
  }
  return "";
}

bool IsBeingWritten(const std::string& run_dir) {
  std::error_code error;
  for (fs::directory_iterator it(run_dir + "/checkpoints", error), end; !error && it != end;
       it.increment(error)) {
    if (it->path().filename().string().rfind(".step-", 0) == 0) return true;
  }
  return false;
}

trainer::v1::TrainerState StateOf(Moment moment) {
  switch (moment) {
    case Moment::kTraining:
      return trainer::v1::TRAINER_STATE_TRAINING;
    case Moment::kPublishing:
      return trainer::v1::TRAINER_STATE_PUBLISHING;
    case Moment::kSnapshot:
      return trainer::v1::TRAINER_STATE_CHECKPOINTING;
    default:
      return trainer::v1::TRAINER_STATE_READY;
  }
}

// Follows the trainer's states until the moment has come. False where the run is over before.
bool AwaitMoment(const std::string& run_dir, const Kill& kill,
                 const std::future<ProgramResult>& run) {
  const auto over = [&run] {
    return run.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  };
  while (!over()) {
    const std::string address = ReadWhole(run_dir + "/logs/trainer-0.ready");
    if (address.empty()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      continue;
    }
    auto stub = trainer::v1::TrainerService::NewStub(
        rpc::MakeChannel(address.substr(0, address.find('\n')), {.retry = false}));
    auto context = rpc::MakeContext(absl::Seconds(kRunSeconds));
    auto watch = stub->Watch(context.get(), {});
    trainer::v1::WatchResponse state;
    while (watch->Read(&state)) {
      if (state.step() < kill.after_step) continue;
      if (kill.moment == Moment::kWriting) {
        while (!IsBeingWritten(run_dir) && !over()) {
          std::this_thread::sleep_for(std::chrono::microseconds(200));
        }
        return !over();
      }
      if (state.state() == StateOf(kill.moment)) return true;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));  // an address of an earlier life
  }
  return false;
}

pid_t FindVictim(const std::string& run_dir, const std::string& victim) {
  const bool is_driver = victim == "driver";
  const std::string text = is_driver ? run_dir : run_dir + "/logs/" + victim + ".ready";
  for (const char* program : {"tandem", "tandem-trainer", "tandem-rollout"}) {
    if (is_driver != (std::string(program) == "tandem")) continue;
    const std::vector<pid_t> pids = ProcessesOf(program, text);
    if (!pids.empty()) return pids[0];
  }
  return 0;
}

std::vector<std::string> With(std::vector<std::string> args, const std::vector<std::string>& sets) {
  for (const std::string& set : sets) args.insert(args.end(), {"--set", set});
  return args;
}

std::vector<std::string> Saving(std::vector<std::string> args, const std::string& run_dir) {
  return With(std::move(args),
              {"run_dir=" + run_dir, "trainer.total_steps=" + std::to_string(kSavingSteps),
               "trainer.test_freq=0", "trainer.save_freq=2", "trainer.keep_last=2",
               "rollout.request_timeout_s=120"});
}

}  // namespace

std::string Describe(const Kill& kill) {
  std::string victim = kill.victim;
  victim.erase(std::remove(victim.begin(), victim.end(), '-'), victim.end());
  return victim + "_" + NameOf(kill.moment) + "_after" + std::to_string(kill.after_step);
}

Kill RandomKill(uint64_t seed, int64_t total_steps, bool has_rollouts) {
  constexpr Moment kMoments[] = {Moment::kStart,      Moment::kGeneration, Moment::kTraining,
                                 Moment::kPublishing, Moment::kSnapshot,   Moment::kWriting};
  std::mt19937_64 random(seed + 1);
  std::vector<std::string> victims = {"trainer-0", "trainer-1", "driver"};
  if (has_rollouts) victims.push_back("rollout-0");
  Kill kill;
  kill.victim = victims[seed % victims.size()];
  kill.moment = kMoments[seed / victims.size() % std::size(kMoments)];
  if (!has_rollouts && kill.moment == Moment::kPublishing) kill.moment = Moment::kTraining;
  kill.after_step = static_cast<int64_t>(random() % static_cast<uint64_t>(total_steps - 1));
  kill.delay_milliseconds =
      static_cast<int>(random() % (kill.moment == Moment::kStart ? 1500 : 30));
  return kill;
}

ProgramResult RunAndKill(const std::vector<std::string>& args, const std::string& run_dir,
                         const Kill& kill) {
  std::future<ProgramResult> run =
      std::async(std::launch::async, [&] { return RunProgram("tandem", args, kRunSeconds); });
  const bool in_time = kill.moment == Moment::kStart || AwaitMoment(run_dir, kill, run);
  if (in_time) {
    std::this_thread::sleep_for(std::chrono::milliseconds(kill.delay_milliseconds));
    // While processes start the victim may not be there yet.
    pid_t victim = 0;
    while (victim == 0 && run.wait_for(std::chrono::milliseconds(1)) != std::future_status::ready) {
      victim = FindVictim(run_dir, kill.victim);
    }
    if (victim != 0) ::kill(victim, SIGKILL);
  }
  ProgramResult result = run.get();
  EXPECT_TRUE(Eventually([&] { return ServicesOf(run_dir).empty(); }, 30)) << Describe(kill);
  return result;
}

std::vector<std::string> SavingTrain(const TempFolder& folder, const std::string& name,
                                     const std::string& mode) {
  return With(Saving(TinyRun(folder, "train"), folder / name), {"trainer.mode=" + mode});
}

std::vector<std::string> SavingReplay(const TempFolder& folder, const std::string& name) {
  std::mt19937_64 random(5);
  std::string samples;
  for (int group = 0; group < 12; ++group) {
    std::vector<int64_t> prompt(1 + random() % 5);
    for (int64_t& id : prompt) id = static_cast<int64_t>(2 + random() % 13);
    for (int i = 0; i < 4; ++i) {
      std::vector<int64_t> response(1 + random() % 6);
      for (int64_t& id : response) id = static_cast<int64_t>(random() % 15);
      samples += nlohmann::json{{"prompt_ids", prompt},
                                {"response_ids", response},
                                {"rewards", static_cast<double>(random() % 5) / 4},
                                {"group", group}}
                     .dump() +
                 "\n";
    }
  }
  std::vector<std::string> args = Saving(TinyRun(folder, "replay"), folder / name);
  args.insert(args.end(), {"--input", folder.Write("samples.jsonl", samples)});
  return args;
}

std::vector<nlohmann::json> ExpectWholeRun(const std::string& run_dir) {
  std::vector<nlohmann::json> steps;
  std::vector<int64_t> numbers, expected;
  for (const nlohmann::json& row : JsonLines(ReadWhole(run_dir + "/metrics.jsonl"))) {
    const int64_t step = row["training/global_step"];
    if (step == 0) continue;  // the policy before training
    numbers.push_back(step);
    steps.push_back(row);
  }
  for (int64_t step = 1; step <= kSavingSteps; ++step) expected.push_back(step);
  EXPECT_EQ(numbers, expected);
  std::vector<std::string> checkpoints;
  for (const auto& entry : fs::directory_iterator(run_dir + "/checkpoints")) {
    checkpoints.push_back(entry.path().filename());
  }
  EXPECT_THAT(checkpoints, ::testing::UnorderedElementsAre("step-6", "step-8"));
  EXPECT_TRUE(fs::exists(run_dir + "/model/model.safetensors"));
  return steps;
}

std::vector<int64_t> TrainedRows(const std::string& run_dir) {
  std::vector<int64_t> rows;
  for (int64_t step = 1; step <= kSavingSteps; ++step) {
    for (const nlohmann::json& row :
         JsonLines(ReadWhole(run_dir + "/rollouts/" + std::to_string(step) + ".jsonl"))) {
      rows.push_back(row["row"]);
    }
  }
  EXPECT_FALSE(fs::exists(run_dir + "/rollouts/" + std::to_string(kSavingSteps + 1) + ".jsonl"));
  return rows;
}

}  // namespace tandem::testing
