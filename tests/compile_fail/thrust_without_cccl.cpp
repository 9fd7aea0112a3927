// expect-error: thrust.cuh> needs Thrust
#include <plimsoll/execution/thrust.cuh>
