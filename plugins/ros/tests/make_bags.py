"""Writes the bags of the cases in `testdata`, with PyPI `rosbags`: `make_bags.py FOLDER`."""
import os, sys
from rosbags.rosbag1 import Writer
from rosbags.typesys import Stores, get_typestore
ts=get_typestore(Stores.ROS1_NOETIC)
T=ts.types
out=sys.argv[1]; os.makedirs(out,exist_ok=True)
import numpy as np
def write(path, comp, n, thr):
    if os.path.exists(path): os.remove(path)
    w=Writer(path)
    w.chunk_threshold=thr
    if comp: w.set_compression(comp)
    w.open()
    a=w.add_connection('/chatter','std_msgs/msg/String',typestore=ts,callerid='/talker',latching=0)
    b=w.add_connection('/scan','sensor_msgs/msg/LaserScan',typestore=ts,callerid='/laser',latching=1)
    c=w.add_connection('/chatter','std_msgs/msg/String',typestore=ts,callerid='/other',latching=0)
    for i in range(n):
        t=1_700_000_000_000_000_000+i*100_000_000
        w.write(a,t,ts.serialize_ros1(T['std_msgs/msg/String'](data=f'hello {i}'),'std_msgs/msg/String'))
        if i%2==0:
            h=T['std_msgs/msg/Header'](seq=i,stamp=T['builtin_interfaces/msg/Time'](sec=1_700_000_000,nanosec=i),frame_id='laser')
            m=T['sensor_msgs/msg/LaserScan'](header=h,angle_min=-1.0,angle_max=1.0,angle_increment=.5,time_increment=0.,scan_time=.1,range_min=0.,range_max=10.,ranges=np.array([1.5*i,2,3,4,5],np.float32),intensities=np.array([],np.float32))
            w.write(b,t+1,ts.serialize_ros1(m,'sensor_msgs/msg/LaserScan'))
        if i%3==0: w.write(c,t+2,ts.serialize_ros1(T['std_msgs/msg/String'](data='other'),'std_msgs/msg/String'))
    w.close()
C=Writer.CompressionFormat
write(out+'/plain.bag',None,6,200)
write(out+'/bz2.bag',C.BZ2,6,200)
write(out+'/lz4.bag',C.LZ4,6,200)
