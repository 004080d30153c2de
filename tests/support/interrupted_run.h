// Runs of `tandem` of which one process is killed at a chosen moment, and what must be true of a
// run folder however often that happened.
#ifndef TANDEM_TESTS_SUPPORT_INTERRUPTED_RUN_H_
#define TANDEM_TESTS_SUPPORT_INTERRUPTED_RUN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"
#include "tests/support/program.h"
#include "tests/support/temp_folder.h"

namespace tandem::testing {

// A moment in the life of a run.
enum class Moment {
  kStart,       // while processes come up
  kGeneration,  // the trainer waits
  kTraining,
  kPublishing,
  kSnapshot,  // the ranks copy their shards
  kWriting,   // a checkpoint is being written under its temporary name
};

struct Kill {
  std::string victim;  // "trainer-0", "trainer-1", "rollout-0", "driver"
  Moment moment = Moment::kTraining;
  int64_t after_step = 0;      // the moment is waited for once this step is done
  int delay_milliseconds = 0;  // after the moment
};

// "driver_Writing_after2": for names of tests and messages.
std::string Describe(const Kill& kill);

// A different one for each seed; victims and moments are all among any 24 seeds in a row. Without
// rollouts none is chosen.
Kill RandomKill(uint64_t seed, int64_t total_steps, bool has_rollouts);

// Runs the program and kills the victim when the moment has come. A run that ends before is let
// end. Exit code 128 + 9 or 137 where the driver was killed.
ProgramResult RunAndKill(const std::vector<std::string>& args, const std::string& run_dir,
                         const Kill& kill);

// Arguments of a run of 8 steps with a checkpoint every second step into `folder`/NAME: tandem
// train (mode sync or one_step_off) or tandem replay.
std::vector<std::string> SavingTrain(const TempFolder& folder, const std::string& name,
                                     const std::string& mode);
std::vector<std::string> SavingReplay(const TempFolder& folder, const std::string& name);
inline constexpr int64_t kSavingSteps = 8;

// The lines of steps 1 to kSavingSteps of a run's metrics, after checking that every step is there
// exactly once and in order; that the last checkpoints are there and nothing unfinished; and that
// the model was written.
std::vector<nlohmann::json> ExpectWholeRun(const std::string& run_dir);

// Data-set rows in the order in which they were trained on, sample by sample.
std::vector<int64_t> TrainedRows(const std::string& run_dir);

}  // namespace tandem::testing

#endif  // TANDEM_TESTS_SUPPORT_INTERRUPTED_RUN_H_
