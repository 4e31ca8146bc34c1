"""Writes an MCAP file of ROS 2 messages: IMU readings and laser scans, and prints their number.

    make_ros2.py OUT READINGS
"""

import math
import struct
import sys

from mcap.writer import Writer

BREAK = "=" * 80
HEADER = (f"{BREAK}\nMSG: std_msgs/Header\nbuiltin_interfaces/Time stamp\nstring frame_id\n"
          f"{BREAK}\nMSG: builtin_interfaces/Time\nint32 sec\nuint32 nanosec\n")
IMU = ("std_msgs/Header header\ngeometry_msgs/Quaternion orientation\n"
       "float64[9] orientation_covariance\ngeometry_msgs/Vector3 angular_velocity\n"
       "float64[9] angular_velocity_covariance\ngeometry_msgs/Vector3 linear_acceleration\n"
       f"float64[9] linear_acceleration_covariance\n{HEADER}"
       f"{BREAK}\nMSG: geometry_msgs/Quaternion\nfloat64 x\nfloat64 y\nfloat64 z\nfloat64 w\n"
       f"{BREAK}\nMSG: geometry_msgs/Vector3\nfloat64 x\nfloat64 y\nfloat64 z\n")
SCAN = ("std_msgs/Header header\nfloat32 angle_min\nfloat32 angle_max\nfloat32 angle_increment\n"
        "float32 time_increment\nfloat32 scan_time\nfloat32 range_min\nfloat32 range_max\n"
        f"float32[] ranges\nfloat32[] intensities\n{HEADER}")
# A scan for so many readings.
READINGS_PER_SCAN = 20
RANGES = 360
START, STEP = 1_700_000_000_000_000_000, 5_000_000


def head(time, frame):
    """The encapsulation (little-endian) and a header."""
    stamp = struct.pack("<iII", time // 10**9, time % 10**9, len(frame) + 1)
    return b"\0\1\0\0" + stamp + frame + b"\0"


def imu(time, number):
    front = head(time, b"imu")
    values = [math.sin(number / 50 + k) for k in range(10)]
    fields = [*values[:4], *[0.01] * 9, *values[4:7], *[0.02] * 9, *values[7:], *[0.03] * 9]
    padding = b"\0" * (-(len(front) - 4) % 8)
    return front + padding + struct.pack("<37d", *fields)


def scan(time, number):
    front = head(time, b"laser")
    ranges = [5 + math.sin(number / 9 + k / 30) for k in range(RANGES)]
    padding = b"\0" * (-(len(front) - 4) % 4)
    return (front + padding + struct.pack("<7f", -3.14, 3.14, 0.0175, 0, 0.1, 0.1, 30)
            + struct.pack(f"<I{RANGES}f", RANGES, *ranges) + struct.pack(f"<I{RANGES}f", RANGES,
                                                                        *ranges))


def main():
    out, readings = sys.argv[1], int(sys.argv[2])
    with open(out, "wb") as file:
        writer = Writer(file)
        writer.start(profile="ros2", library="make_ros2.py")
        topics = []
        for topic, name, text in (("/imu", "sensor_msgs/msg/Imu", IMU),
                                  ("/scan", "sensor_msgs/msg/LaserScan", SCAN)):
            schema = writer.register_schema(name, "ros2msg", text.encode())
            topics.append(writer.register_channel(topic, "cdr", schema))
        count = 0
        for number in range(readings):
            time = START + number * STEP
            messages = [(topics[0], imu(time, number))]
            if number % READINGS_PER_SCAN == 0:
                messages.append((topics[1], scan(time, number)))
            for channel, data in messages:
                writer.add_message(channel, time, data, time, count)
                count += 1
        writer.finish()
    print(count)


if __name__ == "__main__":
    main()
