// The data files of this folder, compiled into the binary.
#ifndef TANDEM_TOOLS_TANDEM_PLAN_DATA_H_
#define TANDEM_TOOLS_TANDEM_PLAN_DATA_H_

namespace tandem::plan {

extern const char kHardwareYaml[];
extern const char kModelShapesJson[];

}  // namespace tandem::plan

#endif  // TANDEM_TOOLS_TANDEM_PLAN_DATA_H_
