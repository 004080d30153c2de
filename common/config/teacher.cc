#include "common/config/teacher.h"

#include "absl/strings/str_cat.h"

namespace tandem::config {

std::vector<TeacherSource> TeachersOf(const v1::RunConfig& config) {
  const v1::TeacherConfig& teacher = config.teacher();
  std::vector<TeacherSource> out;
  if (!teacher.path().empty() || !teacher.endpoint().empty()) {
    out.push_back({"teacher", "", teacher.path(), teacher.endpoint()});
  }
  for (int i = 0; i < teacher.teachers_size(); ++i) {
    const v1::SourceTeacher& source = teacher.teachers(i);
    out.push_back({absl::StrCat("teacher.teachers[", i, "]"), source.data_source(), source.path(),
                   source.endpoint()});
  }
  return out;
}

bool DistilsOnPolicy(const v1::RunConfig& config) {
  const bool of_samples =
      config.teacher().top_k() == 0 || config.teacher().mode() == v1::DISTILLATION_MODE_LOSS;
  return of_samples && !TeachersOf(config).empty();
}

bool LearnsFromRewards(const v1::RunConfig& config) {
  return !DistilsOnPolicy(config) || config.teacher().reward_coef() > 0;
}

bool DistilsTopK(const v1::RunConfig& config) {
  return config.teacher().top_k() > 0 && !TeachersOf(config).empty();
}

}  // namespace tandem::config
